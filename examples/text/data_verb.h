#pragma once
#include "examples/text/make_shards.h"
#include "parallel/program/program.h"

namespace triax::text {

/// What `data` and `data inspect` can be told.
struct DataOptions {
  std::string config, inspected;
  ShardJob job;
};
/// The verbs of a program that make shards of tokens from texts, and check and describe them.
std::vector<parallel::Verb> data_verbs(const std::string& program, DataOptions& o);

}  // namespace triax::text
