// minigpt: a GPT on a text, on any mesh. `minigpt --help` lists what it can do.
#include "examples/minigpt/config.h"

int main(int argc, char** argv) {
  triax::minigpt::Config config;
  triax::text::SampleOptions sample;
  return triax::parallel::program(argc, argv, triax::minigpt::program_options(config, sample));
}
