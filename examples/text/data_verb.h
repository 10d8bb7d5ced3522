#pragma once
#include "examples/text/make_shards.h"
#include "parallel/program/program.h"

namespace triax::text {

/// The options of `data` and `data inspect`.
struct DataOptions {
  std::string config, inspected;
  ShardJob job;
};
/// Returns the verbs of a program that make shards of tokens from texts, check and describe them.
std::vector<parallel::Verb> data_verbs(const std::string& program, DataOptions& o);

}  // namespace triax::text
