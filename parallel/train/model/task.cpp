#include "triax/parallel/train/model/task.h"

#include <set>

#include "triax/core/check.h"
#include "triax/core/io/checksum.h"
#include "triax/core/io/files.h"
#include "triax/parallel/comm/together.h"
#include "triax/parallel/settings/bytes.h"
#include "triax/parallel/train/model/feed.h"

namespace triax::parallel {
namespace {

/// The keys of a line of metrics.jsonl (report.cpp).
const std::set<std::string> metrics_keys = {"step",       "loss",    "grad_norm", "lr",
                                            "loss_scale", "skipped", "seconds",   "memory_bytes",
                                            "overflow",   "changed", "val_loss",  "expert_load"};
/// The texts that a checkpoint has of its own (run_directory.cpp, resume.cpp, step.cpp).
const std::set<std::string> checkpoint_texts = {"settings",    "config",           "updates",
                                                "loss_scaler", "consumed_samples", "val_loss"};
constexpr auto letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";

void check_count(const nn::Samples& samples, const char* whose) {
  check_input(samples.count() >= 1, Exit::data,
              "samples: count() of the {} ones is {}; expected 1 or more", whose, samples.count());
}

/// Checks memory: Linux overcommits, so a large allocation succeeds, and kills the process later.
void check_room(const Task& task, int64_t samples) {
  nn::Batch one = batch_like(task, 1);
  double each = sizeof samples;
  for (auto& x : nn::tensors(one)) each += double(x.bytes());
  double bytes = 2 * each * double(samples), room = available_memory();  // it is copied once
  check_input(room == 0 || bytes < room, Exit::memory,
              "batch: {} samples at once take {}; this machine has {} free\n"
              "  Take a smaller --micro-batch (for parity's one rank, a smaller --global-batch).",
              samples, show_bytes(bytes), show_bytes(room));
}

/// Adds the identity of `which` samples to `all`. identity() may be only a name: data of another
/// size or with another beginning are others.
void identify(const std::string& which, const nn::Samples& samples,
              std::map<std::string, std::string>& all) {
  std::string own = samples.identity();
  check_input(is_plain_text(own) && own.find('\n') == own.npos, Exit::config,
              "it is `{}`; expected one line of UTF-8: write a digest in hexadecimal digits",
              printable(own));
  all[which + " samples"] = own;
  all[which + " samples: number"] = std::to_string(samples.count());
  all[which + " samples: first"] =
      digest(batch_of(samples, {0}, nn::evaluation, "the first sample"));
}

}  // namespace

void check_task(const Task& task) {
  check_input(task.build != nullptr, Exit::config, "task: no build; expected what makes the model");
  check_input(task.samples != nullptr, Exit::config, "task: no samples; expected data to train on");
  check_count(*task.samples, "training");
  if (task.held_out) check_count(*task.held_out, "held-out");
  check_input(!task.unit.empty() && !metrics_keys.contains(task.unit), Exit::config,
              "task: unit `{}`; expected a name that is no key of metrics.jsonl: not {}", task.unit,
              join(metrics_keys, ", "));
  for (auto& [name, score] : task.scores)
    check_input(!name.empty() && name.find_first_not_of(letters) == name.npos && name != "loss" &&
                    score != nullptr,
                Exit::config,
                "task: score `{}`; expected a function with a name of letters, digits, `_` and "
                "`-`, not loss",
                printable(name));
  for (auto& [name, text] : task.attachments) {
    check_input(!name.empty() && name.find_first_not_of(letters) == name.npos &&
                    !checkpoint_texts.contains(name),
                Exit::config,
                "task: attachment `{}`; expected a name of letters, digits, `_` and `-`, not {}",
                printable(name), join(checkpoint_texts, ", "));
    check_input(is_plain_text(text), Exit::config,
                "task: attachment `{}` is no text; expected UTF-8 without NUL", name);
  }
}

nn::Batch batch_like(const Task& task, int64_t samples) {
  if (samples > 1) check_room(task, samples);
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < samples; ++i) indices.push_back(i % task.samples->count());
  return batch_of(*task.samples, indices, 0, "the probe");
}

nn::Batch shaped_like(const Task& task, int64_t samples) {
  return nn::mapped(batch_like(task, 1), [&](const Tensor& x) {
    Shape shape = x.shape();
    shape[0] = samples;
    return empty(shape, x.dtype(), meta_device);
  });
}

std::string digest(const nn::Batch& batch) {
  std::string text;
  for (auto& held : nn::tensors(batch)) {
    Tensor x = held.contiguous();
    text +=
        fmt::format("{}{} crc32c {:08x}", text.empty() ? "" : ", ", x, crc32c(x.data(), x.bytes()));
  }
  return text;
}

std::string weight_warning(const nn::Samples& samples) {
  Tensor target = batch_of(samples, {0}, nn::evaluation, "the first sample").target;
  if (is_float(target.dtype())) return "";
  double count = 0, weight = samples.weight(0);
  for (int64_t x : target.contiguous().to(i64).to_host<int64_t>()) count += x != -1;
  if (count == weight) return "";
  return fmt::format(
      "warning: sample 0 has {} targets that are not -1, but its weight is {}. The loss is divided "
      "by the weights: override Samples::weight if this is not intended.\n",
      count, weight);
}

std::map<std::string, std::string> identity_of(const Task& task) try {
  if (!task.identity.empty()) return task.identity;
  std::map<std::string, std::string> all = {{"held-out samples", "none"}};
  identify("training", *task.samples, all);
  if (task.held_out) identify("held-out", *task.held_out, all);
  return all;
} catch (...) {
  rethrow_from("samples: identity");
}

}  // namespace triax::parallel
