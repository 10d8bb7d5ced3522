// A Llama on any mesh: triax-llama train --comm threads --ranks 8 --dp 2 --pp 2 --tp 2 --zero 1
#include "examples/llama/program.h"

int main(int argc, char** argv) {
  LlamaOptions options;
  return triax::parallel::program(argc, argv, program_options(options));
}
