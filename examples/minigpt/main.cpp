#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "core/check.h"
#include "examples/minigpt/config.h"
#include "examples/minigpt/launch.h"
#include "examples/minigpt/parity.h"
#include "examples/minigpt/plan.h"
#include "examples/minigpt/sample.h"
#include "parallel/comm/launch/world.h"

namespace triax::minigpt {

namespace {

constexpr const char* usage =
    "Usage: minigpt VERB [FLAGS]\n"
    "\n"
    "  train   train a transformer on the characters of a text\n"
    "  sample  let a trained one continue a text\n"
    "  parity  compare a mesh with one rank, tensor by tensor\n"
    "  plan    say what each mesh would hold, and about how fast it would be\n"
    "  flags   print the table of all flags, in Markdown\n"
    "\n"
    "`minigpt VERB --help` says more.\n";

int run(int argc, char** argv) {
  std::vector<std::string> all(argv + std::min(argc, 1), argv + argc);
  std::span<const std::string> words = all;
  if (words.empty()) {
    std::fputs(usage, stderr);
    return int(Exit::usage);
  }
  const std::string& verb = words.front();
  auto rest = words.subspan(1);
  if (verb == "--help" || verb == "-h") return std::fputs(usage, stdout), 0;
  if (verb == "flags" && rest.empty()) return std::fputs(flags_page().c_str(), stdout), 0;
  if (verb == "train") {
    TrainConfig config;
    Verb train_flags = train_verb(config);
    if (parse(train_flags, rest)) return int(launch(config, {argc, argv}));
    return std::fputs(help(train_flags).c_str(), stdout), 0;
  }
  if (verb == "sample") {
    SampleConfig config;
    Verb sample_flags = sample_verb(config);
    if (parse(sample_flags, rest)) return int(launch(config, {argc, argv}));
    return std::fputs(help(sample_flags).c_str(), stdout), 0;
  }
  if (verb == "parity") {
    ParityConfig config;
    Verb parity_flags = parity_verb(config);
    if (parse(parity_flags, rest)) return int(parity(resolved(config)));
    return std::fputs(help(parity_flags).c_str(), stdout), 0;
  }
  if (verb == "plan") {
    PlanConfig config;
    Verb plan_flags = plan_verb(config);
    if (parse(plan_flags, rest)) return int(plan(config));
    return std::fputs(help(plan_flags).c_str(), stdout), 0;
  }
  const std::string verbs[] = {"train", "sample", "parity", "plan", "flags", "--help"};
  fail(Exit::usage, "minigpt: unknown verb {}; the nearest is {}", verb, nearest(verb, verbs));
}

}  // namespace

}  // namespace triax::minigpt

int main(int argc, char** argv) {
  return triax::parallel::run_main(argc, argv, triax::minigpt::run);
}
