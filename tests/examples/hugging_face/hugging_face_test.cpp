// Weights of Hugging Face's models: what they compute here, and that nothing is lost on the way.
#include "tests/examples/hugging_face/hugging_face.h"

#include <cstring>

#include "examples/hugging_face/stream.h"
#include "tests/examples/minigpt/minigpt_run.h"
#include "tests/support/expect_error.h"
#include "tests/support/faulty_files.h"

namespace triax::test::hugging_face_test {

class HuggingFace : public ::testing::TestWithParam<const char*> {
 protected:
  HubModel model = hub_model(GetParam());
  TemporaryDirectory directory;
};

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

/// All weights of a checkpoint.
std::map<std::string, Tensor> weights_of(const std::string& path) {
  auto alone = parallel::single_rank();
  auto checkpoint = parallel::open_checkpoint(path, *alone);
  std::map<std::string, Tensor> all;
  for (auto& [name, stored] : checkpoint.tensors())
    all[name] = checkpoint.read(name, {.full = stored.full});
  return all;
}

void expect_same(const std::map<std::string, Tensor>& a, const std::map<std::string, Tensor>& b) {
  EXPECT_EQ(a.size(), b.size());
  for (auto& [name, value] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    EXPECT_TRUE(same_bits(value, b.at(name))) << name;
  }
}

std::vector<double> expected_logits(const HubModel& m, const char* name) {
  return values(nn::TensorFile(m.folder + "/reference.safetensors").read(name));
}

TEST_P(HuggingFace, AnyMeshComputesTheLogitsOfTransformers) {
  import_to(model, model.folder, directory / "run");
  auto expected = expected_logits(model, "logits");
  for (parallel::MeshShape shape : {parallel::MeshShape{}, {.pp = 2, .tp = 2}}) {
    auto got = logits_of(model, directory / "run", shape);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], expected[i], 1e-5) << i << " of " << shape.size() << " ranks";
  }
}

TEST_P(HuggingFace, ExportGivesBackWhatWasImported) {
  import_to(model, model.folder, directory / "run");
  export_to(model, directory / "run", directory / "back");
  expect_same(hub_tensors(directory / "back"), [&] {
    std::map<std::string, Tensor> all;
    for (auto& [name, value] : hub_tensors(model.folder)) {
      const std::string& prefix = model.architecture.prefix;
      all[name.starts_with(prefix) ? name.substr(prefix.size()) : name] = value;
    }
    return all;
  }());
  import_to(model, directory / "back", directory / "again");
  expect_same(weights_of(directory / "again"), weights_of(directory / "run"));
  export_to(model, directory / "again/step-0", directory / "back again");
  for (const char* file : {"config.json", "model.safetensors"})
    EXPECT_EQ(read_bytes(directory / "back/" + file), read_bytes(directory / "back again/" + file));
}

TEST_P(HuggingFace, ReadsSixteenBitsAndOneFileOrSeveral) {
  import_to(model, model.folder, directory / "run");
  for (DType dtype : {bf16, f16, f32}) {
    HubCopy copy(model);
    copy.rewrite([&](auto& tensors) {
      for (auto& [name, value] : tensors) value = value.to(dtype);
    });
    import_to(model, copy.path(), directory / name(dtype));
    auto expected = weights_of(directory / "run");
    for (auto& [name, value] : expected) value = value.to(dtype).to(f32);
    expect_same(weights_of(directory / name(dtype)), expected);
  }
}

// What transformers loads: a tied weight under either of its names, and a base model's names.
TEST_P(HuggingFace, TakesEitherNameOfATiedWeightAndThoseOfBaseModels) {
  const bool gpt2 = GetParam() == std::string("gpt2"), tied = gpt2 ||
                                                              GetParam() == std::string("llama3") ||
                                                              GetParam() == std::string("qwen3");
  const std::string prefix = gpt2 ? "transformer." : "model.", head = "lm_head.weight",
                    table = prefix + (gpt2 ? "wte.weight" : "embed_tokens.weight");
  import_to(model, model.folder, directory / "run");
  auto expected = weights_of(directory / "run");
  int made = 0;
  auto expect_taken = [&](const std::function<void(std::map<std::string, Tensor>&)>& change) {
    HubCopy copy(model);
    copy.rewrite(change);
    std::string run = directory / fmt::format("run{}", made++);
    import_to(model, copy.path(), run);
    expect_same(weights_of(run), expected);
  };
  auto to_base_names = [&](auto& tensors) {
    std::map<std::string, Tensor> base;
    for (auto& [name, value] : tensors)
      base[name.starts_with(prefix) ? name.substr(prefix.size()) : name] = value;
    tensors = base;
  };
  expect_taken(to_base_names);
  if (!tied) return;
  auto to_head = [&](auto& tensors) {
    tensors[head] = tensors.at(table);
    tensors.erase(table);
  };
  expect_taken(to_head);
  expect_taken([&](auto& tensors) { to_head(tensors), to_base_names(tensors); });
}

TEST_P(HuggingFace, ImportsFewerPositions) {
  import_to(model, model.folder, directory / "run");
  auto expected = weights_of(directory / "run");
  auto import_context = [&](int64_t context) {
    Silence silence;
    HubModel m = hub_model(GetParam());
    hf::import_model(m.architecture, {model.folder, directory / "less", context});
    EXPECT_EQ(*m.architecture.context, context);
  };
  import_context(5);
  if (auto positions = expected.find("positions.table"); positions != expected.end())
    positions->second = positions->second.narrow(0, 0, 5).contiguous();
  expect_same(weights_of(directory / "less"), expected);
  expect_config_error([&] { import_context(1000); }, {"import: context=1000 of a model with"});
}

TEST_P(HuggingFace, AFailureAtAnyMomentLeavesNothingBehind) {
  import_to(model, model.folder, directory / "run");
  auto fails = [&](const std::string& work, const std::function<void(const Files&)>& convert) {
    int at = 0;
    for (bool reached = true; reached; ++at) {
      FaultyFiles full(at, ENOSPC);
      std::filesystem::create_directories(directory / work);
      bool thrown = false;
      try {
        convert(full);
      } catch (const Error& e) {
        thrown = true;
        EXPECT_TRUE(says(std::string(e.what()), "No space")) << e.what();
      }
      reached = !full.failed().empty();
      bool late = full.failed_path() == directory / work;  // of the parent, after the rename
      bool cleaning = full.failed() == "remove";
      EXPECT_EQ(thrown, reached && !cleaning) << at << ": " << full.failed();
      if (thrown && !late) {
        EXPECT_TRUE(std::filesystem::is_empty(directory / work))
            << at << ": " << full.failed() << " " << full.failed_path();
      }
      std::filesystem::remove_all(directory / work);
    }
    EXPECT_GT(at, 10);
  };
  fails("in", [&](auto& files) { import_to(model, model.folder, directory / "in/run", files); });
  fails("out",
        [&](auto& files) { export_to(model, directory / "run", directory / "out/back", files); });
}

INSTANTIATE_TEST_SUITE_P(Models, HuggingFace,
                         ::testing::Values("gpt2", "llama", "llama3", "qwen2", "qwen3", "mixtral",
                                           "olmoe", "qwen2_moe", "qwen3_moe", "mistral", "olmo2"),
                         [](auto& test) { return std::string(test.param); });

// As older files write it; and how an exported one does.
TEST(HuggingFaceLlama, ReadsLinearRotaryScaling) {
  HubModel model = llama_model("llama3");
  HubCopy copy(model);
  std::string config = read_bytes(copy / "config.json");
  size_t begin = config.find("\"rope_parameters\": {"), end = config.find('}', begin) + 1;
  config.replace(begin, end - begin,
                 R"("rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2.5})");
  write_bytes(copy / "config.json", config);
  TemporaryDirectory directory;
  import_to(model, copy.path(), directory / "run");
  export_to(model, directory / "run", directory / "back");
  import_to(model, directory / "back", directory / "again");
  auto expected = expected_logits(model, "logits_linear");
  for (const char* run : {"run", "again"}) {
    auto got = logits_of(model, directory / run);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-5) << run << i;
  }
  EXPECT_GT(std::abs(expected[1000] - expected_logits(model, "logits")[1000]), 1e-3);
}

// Of files that leave them out; exported, they are written.
TEST(HuggingFaceLlama, MissingKeysHaveTheDefaultsOfTheirClass) {
  for (auto [name, theta, eps] : {std::tuple("llama", "10000.0", "1e-06"),
                                  {"mixtral", "1000000.0", "1e-05"},
                                  {"olmoe", "10000.0", "1e-05"},
                                  {"qwen3_moe", "10000.0", "1e-06"},
                                  {"mistral", "10000.0", "1e-06"},
                                  {"olmo2", "10000.0", "1e-05"}}) {
    HubModel model = llama_model(name);
    HubCopy copy(model);
    copy.replace("config.json", "\"rope_parameters\"", "\"rope_parts\"");
    copy.replace("config.json", "\"rms_norm_eps\"", "\"norm_eps\"");
    TemporaryDirectory directory;
    import_to(model, copy.path(), directory / "run");
    export_to(model, directory / "run", directory / "back");
    std::string config = read_bytes(directory / "back/config.json");
    EXPECT_TRUE(says(config, fmt::format("\"rope_theta\": {},", theta))) << config;
    EXPECT_TRUE(says(config, fmt::format("\"rms_norm_eps\": {},", eps))) << config;
  }
}

// One tensor at a time is in memory, and only while it is written.
TEST(HuggingFaceStream, DeferredTensorsHaveBytesOnlyWhileTheyAreHeld) {
  int made = 0;
  Tensor x = hf::deferred({3}, f32, [&](const Tensor& t) { fill_(t, ++made); });
  int64_t before = memory::counter()->live();
  EXPECT_FALSE(x.storage()->present());
  for (int i = 1; i <= 2; ++i) {
    auto held = x.storage()->hold(Access::read);
    EXPECT_EQ(x.to_host<float>(), std::vector<float>(3, float(i)));
    EXPECT_EQ(memory::counter()->live(), before + 12);
  }
  EXPECT_FALSE(x.storage()->present());
  EXPECT_EQ(memory::counter()->live(), before);
}

// The sizes of the published models, without their weights: every parameter has its rule.
TEST(HuggingFaceSizes, OfTheFourGpt2Models) {
  struct Size {
    int64_t layers, heads, width, parameters;
  };
  for (auto [layers, heads, width, parameters] :
       {Size{12, 12, 768, 124439808}, Size{24, 16, 1024, 354823168}, Size{36, 20, 1280, 774030080},
        Size{48, 25, 1600, 1557611200}}) {
    TemporaryDirectory directory;
    write_bytes(directory / "config.json",
                fmt::format(R"({{"model_type": "gpt2", "activation_function": "gelu_new",
                  "attn_pdrop": 0.1, "embd_pdrop": 0.1, "resid_pdrop": 0.1, "n_ctx": 1024,
                  "layer_norm_epsilon": 1e-05, "n_embd": {}, "n_head": {}, "n_layer": {},
                  "n_positions": 1024, "task_specific_params": {{"text-generation":
                  {{"do_sample": true, "max_length": 50}}}}, "vocab_size": 50257}})",
                            width, heads, layers));
    HubModel m = gpt2_model();
    hf::read_config(m.architecture, hf::ModelConfig(directory / "config.json", {"gpt2"}));
    std::map<std::string, Shape> rules;
    int64_t sum = 0, there = 0;
    for (auto& rule : m.architecture.rules()) {
      rules[rule.ours] = rule.full;
      sum += rule.full.numel();
      for (auto& part : rule.parts) there += part.shape.numel();
    }
    EXPECT_EQ(sum, parameters);
    EXPECT_EQ(there, parameters);
    auto alone = parallel::single_rank();
    auto model = parallel::model_of(m.build(), parallel::TensorParallel(*alone));
    model->bind(1);
    EXPECT_EQ(model->parameters().size(), rules.size());
    for (auto* p : model->parameters()) EXPECT_EQ(str(rules[p->name]), str(p->full)) << p->name;
  }
}

}  // namespace triax::test::hugging_face_test

namespace triax::minigpt::hugging_face_test {

/// Trains from the weights of a run directory.
struct Finetuning : ::testing::Test {
  Finetuning() {
    test::HubModel m = test::gpt2_model();
    test::import_to(m, m.folder, imported);
    job.model = {.layers = 2, .heads = 4, .width = 24, .context = 16, .vocab = 96};
    job.train.init = imported;
    job.step().micro_batch = 2, job.step().global_batch = 8;
    job.train.steps = 3, job.train.lr.warmup = 0;
  }
  std::vector<double> losses(const Layout& layout) {
    job.set(layout);
    parallel::Task task = task_of(job);
    task.settings = settings(job);
    std::vector<double> all;
    parallel::run_worlds(layout.ranks(), [&](parallel::World& world) {
      parallel::Trainer trainer(task, job.train, world);
      for (int i = 0; i < 3; ++i) {
        double loss = trainer.step().loss;
        if (world.rank() == 0) all.push_back(loss);
      }
    });
    return all;
  }

  test::TemporaryDirectory directory;
  std::string imported = directory / "imported";
  Job job;
};

TEST_F(Finetuning, IsTheSameOnAnyMesh) {
  auto one = losses({});
  job.train.init.clear();
  auto fresh = losses({});
  job.train.init = imported;
  EXPECT_GT(std::abs(one[0] - fresh[0]), 0.1);  // else the weights of the file count nothing
  for (Layout l : {Layout{.dp = 2, .pp = 2, .tp = 2, .zero = 1}, Layout{.dp = 4, .zero = 3},
                   Layout{.pp = 2, .tp = 4, .sequence_parallel = true}}) {
    auto many = losses(l);
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(many[i], one[i], 2e-5 * one[i]) << describe(l);
  }
}

// The optimizer of 16 bits, and the average, keep copies of the weights.
TEST_F(Finetuning, CopiesOfTheWeightsBeginWithThem) {
  job.step().dtype = bf16;
  job.step().average = 0.9;
  auto alone = parallel::single_rank();
  auto checkpoint = parallel::open_checkpoint(imported, *alone);
  parallel::Task task = task_of(job);
  task.settings = settings(job);
  parallel::run_worlds(1, [&](parallel::World& world) {
    parallel::Trainer trainer(task, job.train, world);
    int copies = 0;
    for (auto& p : trainer.update().pieces(parallel::Holder::any)) {
      if (p.kind == "m" || p.kind == "v") continue;
      auto expected = checkpoint.read(p.name, p.part).to(p.value.dtype());
      EXPECT_EQ(test::values(p.value), test::values(expected)) << p.name << " " << p.kind;
      copies += p.kind == "master" || p.kind == "average";
    }
    EXPECT_GT(copies, 2);
  });
}

TEST_F(Finetuning, RefusesAnotherModelAndResumingWithoutState) {
  job.model.heads = 2;  // the same shapes
  test::expect_config_error([&] { losses({}); },
                            {"is of a model with heads 4; this run asks for 2"});
  job.model.heads = 4, job.model.layers = 1;
  test::expect_config_error([&] { losses({}); }, {"layers 2; this run asks for 1"});
  job.model.layers = 2;
  job.train.init.clear();
  job.train.out = directory / "run";
  job.train.resume = imported + "/step-0";
  test::expect_config_error([&] { losses({}); }, {"holds weights alone", "--init"});
  EXPECT_FALSE(std::filesystem::exists(directory / "run"));
}

// A run's own weights are initial weights for another one, too; resumed, it goes on with its own.
TEST_F(Finetuning, BeginsOnceAndResumesItself) {
  job.train.out = directory / "run";
  job.train.resume = "auto";
  job.train.lr = {.peak = 1e-3, .low = 1e-3, .warmup = 0, .steps = 1};
  job.train.steps = 2;
  job.text.data = directory / "text.txt";
  test::write_bytes(job.text.data, some_text());
  EXPECT_EQ(train(job, 1), Exit::ok);
  job.train.steps = 4;
  EXPECT_EQ(train(job, 1), Exit::ok);
  Job whole = job;
  whole.train.out = directory / "whole";
  EXPECT_EQ(train(whole, 1), Exit::ok);
  auto line = [&](const std::string& run, int n) {
    std::istringstream lines(test::read_bytes(directory / run + "/metrics.jsonl"));
    std::string text;
    while (n-- > 0) std::getline(lines, text);
    return text.substr(0, text.find(",\"grad_norm\""));
  };
  for (int step : {1, 4}) EXPECT_EQ(line("run", step), line("whole", step));
  Job next = job;
  next.train.init = job.train.out;
  next.train.out = directory / "next";
  EXPECT_EQ(train(next, 1), Exit::ok);
  EXPECT_NE(line("next", 1), line("run", 1));
}

}  // namespace triax::minigpt::hugging_face_test
