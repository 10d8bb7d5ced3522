// `report`: what it writes, what it leaves alone, what it refuses.
#include "parallel/program/report/verb.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/support/call_program.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_task.h"

namespace triax::parallel {
namespace {

using test::read_bytes;
using test::says;
using test::write_bytes;

class ReportVerb : public testing::Test {
 protected:
  ReportVerb() : options_{.name = "tiny", .what = "A test.", .train = test::tiny_options()} {
    options_.task = [] { return test::task_of(); };
  }
  std::string run(const std::string& name, const std::string& metrics) {
    std::filesystem::create_directories(dir_ / name);
    write_bytes(dir_ / name + "/metrics.jsonl", metrics);
    return dir_ / name;
  }
  test::Said report(std::vector<std::string> words) {
    words.insert(words.begin(), {"tiny", "report"});
    return test::said_by(options_, words);
  }
  std::map<std::string, std::string> files(const std::string& path) {
    std::map<std::string, std::string> all;
    for (auto& entry : std::filesystem::directory_iterator(path))
      if (entry.is_regular_file()) all[entry.path()] = read_bytes(entry.path());
    return all;
  }

  test::TemporaryDirectory dir_;
  ProgramOptions options_;
};

const std::string two_steps =
    "{\"step\":1,\"loss\":4,\"tokens\":8,\"tokens_per_second\":8}\n"
    "{\"step\":2,\"loss\":3.5,\"tokens\":8,\"tokens_per_second\":8}\n";

TEST_F(ReportVerb, WritesAPageAboutARealRun) {
  ASSERT_EQ(test::call(options_,
                       {"tiny", "train", "--steps", "3", "--warmup", "0", "--comm", "threads",
                        "--ranks", "2", "--pp", "2", "--profile", "2-3", "--out", dir_ / "mine"}),
            0);
  auto before = files(dir_ / "mine");
  test::Said said = report({dir_ / "mine", "--out", dir_ / "page.html"});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_TRUE(says(said.out, "page.html: 1 run, "));
  EXPECT_EQ(files(dir_ / "mine"), before) << "a run directory is not changed";
  std::string page = read_bytes(dir_ / "page.html");
  for (const char* part :
       {"<title>mine</title>", "dp 1 x pp 2 x tp 1", "Profile of mine, steps 2 to 3",
        "rank 1 (dp 0, pp 1, tp 0)", "measured, step 3: ", "simulated, 1f1b: ", "3 of 3",
        "<th scope=\"row\">lr</th><td>0.001</td>", "samples per second"})
    EXPECT_TRUE(says(page, part));
  EXPECT_EQ(files(dir_.path()).size(), 1u) << "nothing is left beside the page";
}

// The schedule that a resumed run has now is not that of steps which an earlier start traced.
TEST_F(ReportVerb, SimulatesTheScheduleThatWasTraced) {
  auto train = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"tiny",    "train",       "--warmup", "0",    "--comm",
                                      "threads", "--ranks",     "2",        "--pp", "2",
                                      "--out",   dir_ / "mine", "--resume", "auto"};
    words.insert(words.end(), more.begin(), more.end());
    return test::call(options_, words);
  };
  ASSERT_EQ(train({"--steps", "2", "--profile", "2", "--schedule", "gpipe"}), 0);
  ASSERT_EQ(train({"--steps", "3", "--schedule", "zb-h1"}), 0);
  EXPECT_EQ(report({dir_ / "mine", "--out", dir_ / "page.html"}).code, 0);
  EXPECT_TRUE(says(read_bytes(dir_ / "page.html"), "simulated, gpipe: "));
}

TEST_F(ReportVerb, ShowsMemoryByKind) {
  ASSERT_EQ(
      test::call(options_, {"tiny", "train", "--steps", "1", "--warmup", "0", "--out", dir_ / "a"}),
      0);
  std::string b = run("b", two_steps);
  EXPECT_EQ(report({dir_ / "a", "--out", dir_ / "page.html"}).code, 0);
  std::string page = read_bytes(dir_ / "page.html");
  EXPECT_TRUE(says(page, "memory foreseen, and the peak of each kind</th><td>"));
  EXPECT_TRUE(says(page, "B, parameters "));
  EXPECT_EQ(report({b, "--out", dir_ / "page.html"}).code, 0);
  EXPECT_EQ(read_bytes(dir_ / "page.html").find("foreseen"), std::string::npos) << "not known";
}

TEST_F(ReportVerb, ShowsWhatDiffersFirst) {
  std::string a = run("a", two_steps), b = run("b", two_steps);
  write_bytes(a + "/config.toml", "lr = 0.5\nseed = 1\n");
  write_bytes(b + "/config.toml", "lr = 0.25\nseed = 1\n");
  EXPECT_EQ(report({a, b, "--out", dir_ / "page.html"}).code, 0);
  std::string page = read_bytes(dir_ / "page.html");
  EXPECT_TRUE(says(page, "<th scope=\"row\">lr</th><td>0.5</td><td>0.25</td>"));
  EXPECT_LT(page.find(">lr</th>"), page.find("Settings that are equal"));
  EXPECT_GT(page.find(">seed</th>"), page.find("Settings that are equal"));
}

TEST_F(ReportVerb, ComparesWithAPeakThatIsNamed) {
  std::string a = run("a",
                      "{\"step\":1,\"loss\":4,\"seconds\":2}\n"
                      "{\"step\":2,\"loss\":4,\"seconds\":2}\n");
  write_bytes(a + "/settings.txt",
              "dp = 2\npp = 1\ntp = 2\nprecision = \"bf16\"\nmodel FLOP per step = 3.1648e15\n");
  EXPECT_EQ(report({a, "--out", dir_ / "page.html"}).code, 0);
  std::string page = read_bytes(dir_ / "page.html");
  EXPECT_TRUE(says(page, "model FLOP/s of a rank, median step</th><td>395.6T</td>"));
  EXPECT_EQ(page.find("MFU"), page.npos);
  EXPECT_EQ(report({a, "--out", dir_ / "page.html", "--hardware", "h100"}).code, 0);
  EXPECT_TRUE(
      says(read_bytes(dir_ / "page.html"), "MFU, of the peak of h100</th><td>40 % of 989T</td>"));
  EXPECT_EQ(report({a, "--out", dir_ / "page.html", "--hardware", "x"}).code, int(Exit::config));
}

TEST_F(ReportVerb, KnowsTheWorkOfAModel) {
  std::map<std::string, std::string> flop;
  for (std::string ranks : {"1", "4"}) {
    std::string axis = ranks == "1" ? "1" : "2";
    ASSERT_EQ(test::call(options_, {"tiny", "train", "--steps", "1", "--warmup", "0", "--comm",
                                    "threads", "--ranks", ranks, "--dp", axis, "--tp", axis,
                                    "--global-batch", "32", "--out", dir_ / ranks}),
              0);
    std::string settings = read_bytes(dir_ / ranks + "/settings.txt");
    flop[ranks] = settings.substr(settings.find("model FLOP"), 40);
    flop[ranks].resize(flop[ranks].find('\n'));
  }
  // Two blocks of 16 x 32 and 32 x 16, a head of 4 x 16: 6 for each weight and sample.
  EXPECT_EQ(flop["1"], fmt::format("model FLOP per step = {}", 32 * (2 * 1024 + 64) * 6));
  EXPECT_EQ(flop["1"], flop["4"]) << "on any mesh";
}

TEST_F(ReportVerb, ReplacesItsOwnPagesAlone) {
  std::string a = run("a", two_steps), page = dir_ / "page.html";
  EXPECT_EQ(report({a, "--out", page}).code, 0);
  std::string first = read_bytes(page);
  run("a", two_steps + "{\"step\":3,\"loss\":3,\"tokens\":8,\"tokens_per_second\":8}\n");
  EXPECT_EQ(report({a, "--out", page}).code, 0);
  EXPECT_NE(read_bytes(page), first);
  for (const std::string& other : {dir_ / "notes.html", a + "/metrics.jsonl"}) {
    write_bytes(other, two_steps);
    test::Said said = report({a, "--out", other});
    EXPECT_EQ(said.code, int(Exit::config));
    EXPECT_TRUE(says(said.err, other + " exists and is no page of an earlier report"));
    EXPECT_EQ(read_bytes(other), two_steps);
  }
  EXPECT_EQ(report({a, "--out", a}).code, int(Exit::config)) << "a directory";
  auto before = std::filesystem::current_path();
  std::filesystem::current_path(dir_.path());
  test::Said said = report({a});
  std::filesystem::current_path(before);
  EXPECT_TRUE(says(said.out, "report.html: 1 run, "));
  EXPECT_TRUE(std::filesystem::exists(dir_ / "report.html"));
}

TEST_F(ReportVerb, ShowsNumbersWithoutNoiseInTheirLastDigits) {
  std::string a = run("a", two_steps);
  write_bytes(
      a + "/settings.txt",
      "lr = 0.003\nmin-lr = 0.00030000000000000003\nmodel FLOP per step = 12345678901234.0\n"
      "seed = 12345678901234567\nout = \"v1.0e\"\n# 5 settings\n");
  EXPECT_EQ(report({a, "--out", dir_ / "page.html"}).code, 0);
  std::string page = read_bytes(dir_ / "page.html");
  EXPECT_TRUE(says(page, ">0.0003<"));
  EXPECT_TRUE(says(page, ">12345678901234567<"));
  EXPECT_FALSE(page.find("00000003") != page.npos);
}

TEST_F(ReportVerb, RefusesWhatItCannotDo) {
  std::string a = run("a", two_steps);
  auto refused = [&](std::vector<std::string> words, Exit code, const std::string& why) {
    test::Said said = report(std::move(words));
    EXPECT_EQ(said.code, int(code)) << why;
    EXPECT_TRUE(says(said.err, why));
  };
  refused({"--out", dir_ / "x.html"}, Exit::usage, "RUN.. is not given");
  refused({a, "--out", dir_ / "no/where.html"}, Exit::cannot_write, "no/where.html");
  refused({a, dir_ / "b", "--out", dir_ / "x.html"}, Exit::not_found, "there is no ");
  EXPECT_FALSE(std::filesystem::exists(dir_ / "x.html"));
}

TEST_F(ReportVerb, LongRunsGiveShortPages) {
  std::string metrics;
  for (int i = 1; i <= 30000; ++i)
    metrics += fmt::format(
        R"({{"step":{},"loss":{},"grad_norm":{},"lr":{},"tokens":8,"tokens_per_second":{}}})"
        "\n",
        i, i == 12345 ? 77.125 : 3 + 1.0 / i, 1 + 0.001 * (i % 97), 1e-3 / i, 1000 + i % 31);
  std::vector<std::string> words;
  for (const char* name : {"a", "b", "c"}) words.push_back(run(name, metrics));
  words.insert(words.end(), {"--out", dir_ / "page.html"});
  EXPECT_EQ(report(words).code, 0);
  std::string page = read_bytes(dir_ / "page.html");
  EXPECT_LT(page.size(), 1000000u);
  EXPECT_TRUE(says(page, " 12345 77.125 ")) << "a spike is not lost";
}

}  // namespace
}  // namespace triax::parallel
