// Decoding with a key-value cache is the model without one.
#include <algorithm>
#include <cstdlib>
#include <set>

#include "examples/llama/config.h"
#include "examples/text/sample.h"
#include "tests/examples/minigpt/minigpt_run.h"
#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"
#include "triax/core/cpu/levels.h"

namespace triax::text::decode_test {

using Tokens = std::vector<int32_t>;

constexpr int64_t context = 12, vocabulary = 11;

/// Both models; `size`: of the vocabulary.
struct Models {
  parallel::Build gpt = minigpt::build_of(
      {.layers = 2, .heads = 4, .width = 32, .context = context, .vocab = vocabulary});
  parallel::Build llama = [](auto& tp) {
    LlamaConfig c{.layers = 2,
                  .width = 32,
                  .heads = 4,
                  .kv_heads = 2,
                  .hidden = 48,
                  .context = context,
                  .vocab = vocabulary};
    return std::make_unique<Llama>(c, tp);
  };
  std::vector<std::pair<const char*, parallel::Build>> both() const {
    return {{"gpt", gpt}, {"llama", llama}};
  }
};

Tokens some_tokens(int64_t count) {
  Tokens all;
  for (int64_t i = 0; i < count; ++i) all.push_back(int32_t((i * i + 3 * i) % vocabulary));
  return all;
}
Tensor ids(std::span<const int32_t> tokens) {
  return from_host(tokens, {1, std::ssize(tokens)}, cpu);
}

/// On the instruction level that TRIAX_CPU_LEVEL asks for: tests/examples/CMakeLists.txt.
class Decode : public testing::Test {
 protected:
  void SetUp() override {
    const char* level = std::getenv("TRIAX_CPU_LEVEL");
    auto known = host::levels();
    if (level && std::find(known.begin(), known.end(), level) == known.end())
      GTEST_SKIP() << "this machine has no " << level;
  }
  parallel::TensorParallel tp() { return parallel::TensorParallel(*alone_); }

  /// With weights large enough for logits that differ.
  std::unique_ptr<nn::Sequence> model(const parallel::Build& build, DType dtype) {
    auto made = build(tp());
    made->materialize(cpu, dtype, 1);
    for (auto* p : made->parameters())
      if (p->init.std > 0) copy_(p->value.detach(), p->value.detach() * 8.);
    return made;
  }

 private:
  std::unique_ptr<parallel::Communicator> alone_ = parallel::single_rank();
  NoGrad guard_;
};

/// What one product of a model may be off by.
double tolerance(DType t) { return t == f64 ? 1e-13 : t == f32 ? 2e-5 : t == f16 ? 0.03 : 0.2; }

TEST_F(Decode, LogitsAreThoseWithoutACache) {
  Tokens text = some_tokens(context);
  for (auto& [name, build] : Models().both())
    for (DType dtype : {f64, f32, f16, bf16}) {
      auto whole = model(build, dtype);
      Tensor expected = (*whole)({.input = ids(text), .first = nn::evaluation});
      for (std::vector<int64_t> parts : {std::vector<int64_t>{12},
                                         {5, 7},
                                         {4, 1, 1, 1, 3, 1, 1},
                                         {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}}) {
        nn::KeyValueCache cache(context);
        for (int64_t n : parts) {
          SCOPED_TRACE(testing::Message() << name << ' ' << triax::name(dtype) << ", " << n
                                          << " behind " << cache.tokens());
          auto part = std::span(text).subspan(size_t(cache.tokens()), size_t(n));
          Tensor y = (*whole)({.input = ids(part), .first = nn::evaluation, .cache = &cache});
          cache.advance(n);
          ASSERT_EQ(y.shape(), (Shape{1, vocabulary}));
          test::expect_near(y, test::values(expected.narrow(0, cache.tokens() - 1, 1)),
                            tolerance(dtype));
        }
      }
    }
}

/// The most likely token behind what is seen, without a cache.
int32_t most_likely(parallel::Replica& model, std::span<const int32_t> seen) {
  Tensor logits = model.predict({.input = ids(seen), .first = nn::evaluation});
  auto last = logits.narrow(0, logits.size(0) - 1, 1).to(f64).to_host<double>();
  return int32_t(draw(last, {.temperature = 0}, 0.5));
}

/// `body(replica)` on every rank.
template <class Body>
void on_replicas(const parallel::Build& build, const parallel::MeshShape& shape, const Body& body) {
  auto options = parallel::inference_options(shape, f32);
  options.purpose = nn::Purpose::training;  // with initial weights
  nn::Batch one{.input = zeros({1, context}, i32, cpu), .first = nn::evaluation};
  minigpt::on_mesh(shape, [&](parallel::Mesh& mesh) {
    NoGrad guard;
    parallel::Replica replica(mesh, build, options,
                              parallel::probe(build, one, parallel::probe_options(options)));
    for (auto& piece : replica.pieces(parallel::Holder::any))
      if (piece.name.find("norm") == std::string::npos) copy_(piece.value, piece.value * 8.);
    body(replica);
  });
}

// correctness: token for token, far past the context, whatever part of a mesh a rank is.
TEST_F(Decode, GreedyTextIsThatWithoutACache) {
  const Tokens start = some_tokens(5);
  for (auto& [name, build] : Models().both())
    for (int64_t slide : {int64_t(1), int64_t(5), context}) {
      Tokens expected = start;
      on_replicas(build, {}, [&](parallel::Replica& replica) {
        Window window(context, slide);
        window.append(start);
        while (expected.size() < 40) {
          expected.push_back(most_likely(replica, window.seen()));
          window.append(std::span(expected).last(1));
        }
      });
      EXPECT_GT(std::set<int32_t>(expected.begin() + 5, expected.end()).size(), 1u) << "no test";
      for (parallel::MeshShape shape :
           {parallel::MeshShape{}, {1, 1, 2}, {1, 2, 1}, {1, 2, 2}, {1, 4, 1}}) {
        SCOPED_TRACE(testing::Message()
                     << name << ", slide " << slide << ", pp " << shape.pp << ", tp " << shape.tp);
        on_replicas(build, shape, [&](parallel::Replica& replica) {
          Decoder decoder(replica, context);
          Window window(context, slide);
          window.append(start);
          Tokens text = start;
          while (text.size() < 40) {
            auto logits = decoder.logits(window.seen()).to(f64).to_host<double>();
            text.push_back(int32_t(draw(logits, {.temperature = 0}, 0.5)));
            window.append(std::span(text).last(1));
          }
          EXPECT_EQ(text, expected);
        });
      }
    }
}

TEST_F(Decode, ComputesEachTokenOnce) {
  on_replicas(Models().gpt, {}, [](parallel::Replica& replica) {
    Decoder decoder(replica, context);
    auto computed = [&, before = int64_t(0)](const Tokens& text) mutable {
      decoder.logits(text);
      return decoder.computed() - std::exchange(before, decoder.computed());
    };
    EXPECT_EQ(computed({1, 2, 3, 4}), 4);
    EXPECT_EQ(computed({1, 2, 3, 4, 5}), 1);
    EXPECT_EQ(computed({1, 2, 3, 4, 5, 6, 7}), 2);
    EXPECT_EQ(computed({1, 2, 3, 9}), 1);  // another text that begins alike
    EXPECT_EQ(computed({1, 2}), 1);        // its last token's logits are not kept
    EXPECT_EQ(computed({2, 3, 4, 5}), 4);  // every token stands elsewhere
    test::expect_error([&] { decoder.logits({}); }, {"decoder: 0 tokens", "1 to 12"});
    test::expect_error([&] { decoder.logits(some_tokens(13)); }, {"decoder: 13 tokens"});
  });
}

TEST(Window, BeginsLaterWhenItIsFull) {
  auto seen = [](int64_t slide, int64_t first, int64_t count) {
    Window window(4, slide);
    window.append(Tokens(size_t(first), 0));
    std::string lengths;
    for (int64_t i = 0; i < count; ++i) {
      lengths += std::to_string(window.seen().size());
      window.append(Tokens{int32_t(i)});
    }
    return lengths;
  };
  EXPECT_EQ(seen(1, 2, 5), "23444");
  EXPECT_EQ(seen(2, 2, 7), "2343434");
  EXPECT_EQ(seen(4, 2, 8), "23412341");
  EXPECT_EQ(seen(2, 9, 4), "4343");  // a prompt longer than the context: its end
  Window window(3, 1);
  window.append(Tokens{1, 2, 3, 4, 5});
  EXPECT_TRUE(std::ranges::equal(window.seen(), Tokens{3, 4, 5}));
}

}  // namespace triax::text::decode_test
