// The words of a command line, one a line, and what small languages are in them: placements,
// parameter groups.
#include "triax/parallel/settings/command_line.h"

#include <sstream>

#include "tests/fuzz/fuzz.h"
#include "triax/parallel/train/options/groups.h"
#include "triax/parallel/train/options/options.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triax;
  std::istringstream lines(test::text_of(data, size));
  std::vector<std::string> words;
  for (std::string word; std::getline(lines, word);) words.push_back(word);
  static parallel::TrainOptions o;
  static parallel::CommandLine line{
      "fuzz", "1", {{"train", "Trains.", parallel::train_settings(o)}}};
  o = {};
  return test::accept_or_refuse([&] {
    words.insert(words.begin(), "train");
    (void)parallel::parse(line, words, 80);
    (void)parallel::parse_groups(o.step.groups);
    (void)parallel::placement_of(o.step.placement, {2, 1, 4}, 6);
  });
}
