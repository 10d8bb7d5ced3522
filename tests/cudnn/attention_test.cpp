#include <atomic>
#include <set>
#include <thread>

#include "tests/cudnn/gpus.h"
#include "triax/core/cuda/libraries/cudnn_attention.h"
#include "triax/core/cuda/libraries/cudnn_library.h"

// What cuDNN says to the graphs of core/cuda/libraries/cudnn_attention.cpp, without a GPU.

namespace triax::test {
namespace {

using namespace cuda::dnn;
using Pass = AttentionShape::Pass;

Graph graph_of(const AttentionShape& s, bool packed) {
  return s.pass == Pass::forward ? attention_forward(s, packed) : attention_backward(s, packed);
}

/// Causal, in a packed projection.
AttentionShape shape_of(int64_t head_dim, cudnnDataType_t type, int64_t time, Pass pass) {
  RowStrides packed{12 * 3 * head_dim, 3 * head_dim};
  return {.batch = 4,
          .heads = 12,
          .time = time,
          .keys = time,
          .head_dim = head_dim,
          .causal = true,
          .type = type,
          .pass = pass,
          .q = packed,
          .k = packed,
          .v = packed,
          .dq = packed,
          .dk = packed,
          .dv = packed};
}

class CudnnAttention : public OnAbsentGpu {};

TEST_P(CudnnAttention, IsAccepted) {
  Descriptor gpu = read_gpu(GetParam());
  for (Pass pass : {Pass::forward, Pass::backward, Pass::deterministic_backward})
    for (cudnnDataType_t type : {CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16})
      for (int64_t head_dim : {64, 80, 128})
        for (int64_t time : {1024, 777})
          for (bool packed : {false, true}) {
            std::string refusal;
            Graph graph = graph_of(shape_of(head_dim, type, time, pass), packed);
            EXPECT_FALSE(graph.engines(gpu, refusal).empty())
                << "pass " << int(pass) << ", dtype " << type << ", head_dim " << head_dim
                << ", time " << time << ", packed statistics " << packed << ": " << refusal;
          }
}

// Queries apart from keys and values, of which there are more.
TEST_P(CudnnAttention, CrossAttentionIsAccepted) {
  Descriptor gpu = read_gpu(GetParam());
  for (Pass pass : {Pass::forward, Pass::backward, Pass::deterministic_backward}) {
    AttentionShape s = shape_of(64, CUDNN_DATA_BFLOAT16, 1024, pass);
    s.keys = 1536, s.causal = false;
    s.q = s.dq = s.dk = s.dv = {12 * 64, 64};
    s.k = s.v = {12 * 2 * 64, 2 * 64};
    for (bool packed : {false, true}) {
      std::string refusal;
      EXPECT_FALSE(graph_of(s, packed).engines(gpu, refusal).empty())
          << "pass " << int(pass) << ", packed statistics " << packed << ": " << refusal;
    }
  }
}

TEST_P(CudnnAttention, Compiles) {
  Descriptor gpu = read_gpu(GetParam());
  for (Pass pass : {Pass::forward, Pass::backward}) {
    AttentionShape shape = shape_of(64, CUDNN_DATA_BFLOAT16, 1024, pass);
    make_plan(graph_of(shape, statistics_packed(pass, cudnnGetVersion())), gpu);
  }
}

/// GPT-2 124M at T 1024, as bench/gpu/gpu_jobs.py measures it.
std::vector<AttentionShape> measured() {
  std::vector<AttentionShape> all;
  for (int64_t batch : {64, 32, 16, 8})
    for (Pass pass : {Pass::forward, Pass::backward, Pass::deterministic_backward}) {
      all.push_back(shape_of(64, CUDNN_DATA_BFLOAT16, 1024, pass));
      all.back().batch = batch;
    }
  return all;
}

// Four ranks of a process that ask for all of them at once, each in an order of its own: every plan
// is made once, and is the same for all.
TEST_P(CudnnAttention, PlansOfGpt2AreSharedByThreads) {
  if (GetParam() != std::string("h200")) GTEST_SKIP() << "to save time";
  Plans<AttentionShape> plans;
  std::vector<AttentionShape> shapes = measured();
  std::atomic<int> made = 0;
  std::vector<const Plan*> got[4];
  auto rank = [&](size_t r) {
    got[r].resize(shapes.size());
    for (size_t i = 0; i < shapes.size(); ++i) {
      size_t at = (i + 3 * r) % shapes.size();
      const AttentionShape& s = shapes[at];
      got[r][at] = plans.of(s, 0, [&] {
        ++made;
        return make_plan(graph_of(s, statistics_packed(s.pass, cudnnGetVersion())),
                         read_gpu("h200"));
      });
    }
  };
  std::vector<std::thread> ranks;
  for (size_t r = 0; r < 4; ++r) ranks.emplace_back(rank, r);
  for (auto& r : ranks) r.join();
  EXPECT_EQ(made, int(shapes.size()));
  for (auto& of_rank : got) EXPECT_EQ(of_rank, got[0]);
  if (got[0][0]) {
    EXPECT_EQ(std::set(got[0].begin(), got[0].end()).size(), shapes.size());
  }
  for (size_t i = 0; i < shapes.size() && got[0][i]; ++i) {
    int64_t scores = shapes[i].batch * shapes[i].heads * shapes[i].time * shapes[i].keys;
    bool stored = shapes[i].pass == Pass::deterministic_backward;
    EXPECT_EQ(got[0][i]->workspace() >= size_t(2 * scores), stored) << got[0][i]->workspace();
  }
}

TEST_P(CudnnAttention, IsRefusedWithAReason) {
  Descriptor gpu = read_gpu(GetParam());
  for (Pass pass : {Pass::forward, Pass::backward}) {
    std::string refusal;
    Graph graph = graph_of(shape_of(100, CUDNN_DATA_HALF, 1024, pass), /*packed=*/true);
    EXPECT_EQ(Plan::make(std::move(graph), gpu, refusal), nullptr);
    EXPECT_NE(refusal, "");
  }
}

INSTANTIATE_TEST_SUITE_P(, CudnnAttention, testing::Values("h200", "a100"),
                         [](const auto& gpu) { return std::string(gpu.param); });

TEST(CudnnAttentionVersions, StatisticsAreWrittenAsAskedForBeforeTheyAreReadSo) {
  EXPECT_TRUE(statistics_packed(Pass::forward, 91100));
  EXPECT_FALSE(statistics_packed(Pass::forward, 91200));
  EXPECT_TRUE(statistics_packed(Pass::backward, 92500));
  EXPECT_TRUE(statistics_packed(Pass::deterministic_backward, 92500));
  EXPECT_FALSE(statistics_packed(Pass::backward, 92600));
}

TEST(CudnnAttentionVersions, ThoseWithErrorsAreNotUsed) {
  auto supported = [](int64_t head_dim, int64_t time, Pass pass, size_t version) {
    return is_supported(shape_of(head_dim, CUDNN_DATA_HALF, time, pass), version);
  };
  for (size_t version : {8905, 90000, 91000, 91001, 100000})
    EXPECT_FALSE(supported(64, 1024, Pass::forward, version)) << version;
  EXPECT_TRUE(supported(64, 1024, Pass::forward, 91002));
  EXPECT_TRUE(supported(64, 960, Pass::forward, 91002));
  EXPECT_TRUE(supported(64, 1024, Pass::backward, 91500));
  EXPECT_FALSE(supported(64, 960, Pass::backward, 91500));
  EXPECT_FALSE(supported(64, 960, Pass::deterministic_backward, 91500));
  EXPECT_TRUE(supported(64, 960, Pass::backward, 91600));
  EXPECT_FALSE(supported(64, 1000, Pass::forward, 91900));
  EXPECT_FALSE(supported(100, 1024, Pass::forward, 91900));
  EXPECT_FALSE(supported(264, 1024, Pass::forward, 91900));
}

}  // namespace
}  // namespace triax::test
