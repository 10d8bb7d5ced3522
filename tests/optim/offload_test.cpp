// AdamW with its state elsewhere: the same bits, bounded memory, errors where they belong.
#include "triax/optim/offload.h"

#include <limits>

#include "tests/support/expect_error.h"
#include "tests/support/offload_files.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tensors.h"
#include "triax/optim/adamw.h"

namespace triax::optim {
namespace {

using namespace test;

/// Chunks that do not divide the slots, a window smaller than their number.
Offload to_file(const TemporaryDirectory& directory) {
  return {.to = Offload::To::file, .directory = directory.path(), .chunk = 100, .window = 3};
}

/// Two slots, one of them smaller than a chunk, and ranges that decay across chunks.
struct Model {
  explicit Model(DType t)
      : slots{{filled({1234}, 1, t),
               zeros({1234}, accumulator(t), test_device()),
               {{0, 50}, {90, 310}}},
              {filled({67}, 2, t), zeros({67}, accumulator(t), test_device()), {{60, 67}}}} {}

  void train(AdamW& adam, int steps, uint64_t first = 1) {
    for (int i = 0; i < steps; ++i) {
      for (size_t s = 0; s < slots.size(); ++s)
        copy_(slots[s].grad, filled(slots[s].grad.shape(), first + 100 * s + uint64_t(i), f32));
      adam.step(0.01, 0.7);
    }
  }
  std::vector<Slot> slots;
};

/// State put together from its pieces: `kind` of slot `slot`.
Tensor whole(const AdamW& adam, const Slot& s, size_t slot, const std::string& kind) {
  Tensor all = full(s.grad.shape(), std::numeric_limits<double>::quiet_NaN(), s.grad.dtype(), cpu);
  for (auto& piece : adam.state()) {
    if (piece.slot != slot || piece.kind != kind) continue;
    auto held = piece.value.storage()->hold(Access::read);
    copy_(all.narrow(0, piece.begin, piece.value.numel()), piece.value);
  }
  return all;
}

void expect_same(const Model& a, const AdamW& adam_a, const Model& b, const AdamW& adam_b) {
  for (size_t s = 0; s < a.slots.size(); ++s) {
    expect_bitwise(a.slots[s].weight, b.slots[s].weight);
    bool low = a.slots[s].weight.dtype() != f32;
    for (const char* kind : {"m", "v", "master"}) {
      if (kind == std::string("master") && !low) continue;
      expect_bitwise(whole(adam_a, a.slots[s], s, kind), whole(adam_b, b.slots[s], s, kind), kind);
    }
  }
}

TEST(Offload, HasTheSameBits) {
  TemporaryDirectory directory;
  const Offload places[] = {{.to = Offload::To::host, .chunk = 100}, to_file(directory)};
  for (DType t : {f32, bf16, f16})
    for (const Offload& place : places) {
      Model right(t), model(t);
      AdamW reference(right.slots, {}), adam(model.slots, {.offload = place});
      right.train(reference, 7);
      model.train(adam, 7);
      expect_same(right, reference, model, adam);
    }
}

// What a checkpoint does: state is held, and written, in any order between steps.
TEST(Offload, StateGoesInAndOut) {
  TemporaryDirectory directory;
  for (DType t : {f32, bf16}) {
    Model right(t), model(t);
    AdamW reference(right.slots, {}), adam(model.slots, {.offload = to_file(directory)});
    right.train(reference, 3);
    model.train(adam, 1, 50);  // something else
    auto pieces = adam.state();
    for (size_t i = pieces.size(); i-- > 0;) {
      auto held = pieces[i].value.storage()->hold(Access::write);
      Tensor from = whole(reference, right.slots[pieces[i].slot], pieces[i].slot, pieces[i].kind);
      copy_(pieces[i].value, from.narrow(0, pieces[i].begin, pieces[i].value.numel()));
    }
    for (size_t s = 0; s < 2; ++s) copy_(model.slots[s].weight, right.slots[s].weight);
    adam.set_steps(reference.steps());
    expect_same(right, reference, model, adam);
    right.train(reference, 3, 10);
    model.train(adam, 3, 10);
    expect_same(right, reference, model, adam);
  }
}

TEST(Offload, LeavesComputeMemory) {
  TemporaryDirectory directory;
  auto outer = memory::counter();
  for (int64_t n : {5000, 50000}) {
    auto counter = std::make_shared<memory::Counter>();
    memory::set_counter(counter);
    {
      Slot slot{full({n}, 1, bf16, cpu), full({n}, 1, f32, cpu)};
      int64_t model = counter->live();
      {
        AdamW adam({slot}, {.offload = {.to = Offload::To::host}});
        adam.step(0.1);
        EXPECT_EQ(counter->peak(), model);
        EXPECT_EQ(counter->live(memory::offloaded), 12 * n);
      }
      EXPECT_EQ(counter->live(memory::offloaded), 0);
      AdamW adam({slot}, {.offload = to_file(directory)});
      for (int i = 0; i < 3; ++i) adam.step(0.1);
      for (auto& s : adam.state()) s.value.storage()->hold(Access::write);
      EXPECT_EQ(counter->peak(memory::optimizer), 0);
      EXPECT_EQ(counter->peak(memory::buffers), 3 * 4096);  // of any n
      EXPECT_EQ(counter->live(memory::offloaded), n / 100 * 4096);
    }
    EXPECT_EQ(counter->live(), 0);
    EXPECT_EQ(counter->live(memory::offloaded), 0);
  }
  memory::set_counter(outer);
}

TEST(Offload, PlansOnTheMetaDevice) {
  Slot slot{zeros({5000}, bf16, meta_device), zeros({5000}, f32, meta_device)};
  auto before = memory::counter()->live(memory::offloaded);
  AdamW adam({slot}, {.offload = {.to = Offload::To::file, .directory = "/nowhere", .chunk = 100}});
  adam.step(0.1);
  EXPECT_EQ(memory::counter()->live(memory::offloaded) - before, 50 * 4096);
}

TEST(Offload, StateThatIsOutMustBeHeld) {
  TemporaryDirectory directory;
  Model model(f32);
  AdamW adam(model.slots, {.offload = to_file(directory)});
  std::vector<std::shared_ptr<void>> held;
  auto state = adam.state();
  expect_error([&] { state[8].value.to_host<float>(); }, {"used while released"});
  for (size_t i = 0; i < 3; ++i) held.push_back(state[2 * i].value.storage()->hold(Access::read));
  expect_error([&] { (void)state[6].value.storage()->hold(Access::read); }, {"all 3 chunks"});
  held.pop_back();
  (void)state[6].value.storage()->hold(Access::read);
}

TEST(Offload, StateOutlivesItsOptimizerOut) {
  TemporaryDirectory directory;
  Model model(f32);
  auto adam = std::make_unique<AdamW>(model.slots, AdamWOptions{.offload = to_file(directory)});
  auto state = adam->state();
  adam.reset();
  EXPECT_EQ(state[8].value.storage()->hold(Access::read), nullptr);
  expect_error([&] { state[8].value.to_host<float>(); }, {"used while released"});
}

TEST(Offload, ACutFileEndsTheStep) {
  if (on_gpu()) GTEST_SKIP() << "of the file alone";
  TemporaryDirectory directory;
  Model model(f32);
  AdamW adam(model.slots, {.offload = to_file(directory)});
  model.train(adam, 2);
  ASSERT_EQ(cut_offload_files(directory.path(), 4096), 1);
  auto text = error_of([&] { model.train(adam, 2); }, Exit::io);
  EXPECT_TRUE(says(text, "offload: "));
  // A write still under way makes the file longer again, with zeros in it.
  EXPECT_TRUE(text.find("ends there") != text.npos ||
              text.find("not those that were written") != text.npos)
      << text;
  expect_error([&] { model.train(adam, 1); }, {"offload: "}, Exit::io);
  expect_error([&] { (void)adam.state()[8].value.storage()->hold(Access::read); }, {"offload: "},
               Exit::io);
}

// Written to beyond its end, a file that was cut is as long as before, with zeros in it.
TEST(Offload, ZerosInPlaceOfStateEndTheStep) {
  if (on_gpu()) GTEST_SKIP() << "of the file alone";
  TemporaryDirectory directory;
  Model model(bf16);
  AdamW adam(model.slots, {.offload = to_file(directory)});
  model.train(adam, 2);
  for (size_t bytes : {0, 14 * 4096}) cut_offload_files(directory.path(), bytes);
  expect_error([&] { model.train(adam, 2); }, {"offload: ", "not those that were written"},
               Exit::io);
}

TEST(Offload, RefusesWhatItCannotDo) {
  Model model(f32);
  TemporaryDirectory directory;
  Offload o = to_file(directory);
  o.window = 2;
  expect_error([&] { AdamW adam(model.slots, {.offload = o}); }, {"window of 2"});
  o.window = 3, o.chunk = 0;
  expect_error([&] { AdamW adam(model.slots, {.offload = o}); }, {"chunks of 0"});
  o.chunk = 1, o.directory = directory / "nowhere";
  expect_error([&] { AdamW adam(model.slots, {.offload = o}); }, {"No such file"}, Exit::not_found);
}

}  // namespace
}  // namespace triax::optim
