#include "triax/parallel/train/watch/event_file.h"

#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <optional>

#include "triax/core/check.h"
#include "triax/core/io/checksum.h"
#include "triax/core/io/files.h"
#include "triax/parallel/comm/process.h"
#include "triax/parallel/train/trainer.h"

namespace triax::parallel {
namespace {

static_assert(std::endian::native == std::endian::little, "the files are little-endian");

template <class T> std::string bytes_of(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes.push_back(char(value | 128));
  bytes.push_back(char(value));
  return bytes;
}

/// The encoding of a field: its key in the wire format is (number << 3) | kind.
enum Wire : uint64_t { whole = 0, fixed64 = 1, text = 2, fixed32 = 5 };
std::string field(int number, Wire kind, const std::string& value) {
  std::string length = kind == text ? varint(value.size()) : "";
  return varint(uint64_t(number) << 3 | kind) + length + value;
}

/// Returns the checksum of TFRecords: https://www.tensorflow.org/tutorials/load_data/tfrecord.
std::string masked_checksum(const std::string& bytes) {
  uint32_t crc = crc32c(bytes.data(), bytes.size());
  return bytes_of(std::rotr(crc, 15) + uint32_t{0xa282ead8});
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

constexpr std::string_view prefix = "events.out.tfevents.";

/// Returns a file name that sorts after those there, as files are read in this order: the clock may
/// have gone back since the newest was made.
std::string new_name(const std::string& directory) {
  auto at = [host = host_name()](double seconds) {
    return fmt::format("{}{:017.6f}.{}", prefix, seconds, host);
  };
  std::string name = at(seconds_since_1970());
  for (auto& other : disk().list(directory)) {
    double made = 0;
    bool newer =
        other.starts_with(prefix) && other >= name &&
        std::from_chars(other.data() + prefix.size(), other.data() + other.size(), made).ec ==
            std::errc();
    if (newer) name = at(made + 1);
  }
  return name;
}

}  // namespace

// Fields by number. Event: 1 time, 2 step, 3 version, 5 Summary, 7 SessionLog. Summary: 1 Value, of
// which 1 is the tag, 2 a float. SessionLog: 1 status, of which 1 is START.
EventFile::EventFile(const std::string& directory, int64_t first_step)
    : path_(directory + "/" + new_name(directory)),
      file_(std::fopen(path_.c_str(), "wbxe"), &std::fclose) {
  check_input(file_ != nullptr, Exit::cannot_write, "tensorboard: cannot write {}: {}", path_,
              std::strerror(errno));
  write(0, field(3, text, "brain.Event:2"));
  write(first_step, field(7, text, field(1, whole, varint(1))));
  flush();
}

void EventFile::scalar(int64_t step, std::string_view tag, double value) {
  std::string entry = field(1, text, std::string(tag)) + field(2, fixed32, bytes_of(float(value)));
  write(step, field(5, text, field(1, text, entry)));
}

void EventFile::write(int64_t step, const std::string& fields) {
  std::string event = field(1, fixed64, bytes_of(seconds_since_1970())) +
                      field(2, whole, varint(uint64_t(step))) + fields;
  std::string length = bytes_of(uint64_t(event.size()));
  std::string record = length + masked_checksum(length) + event + masked_checksum(event);
  (void)std::fwrite(record.data(), 1, record.size(), file_.get());  // flush() sees what failed
}

void EventFile::flush() {
  check_input(std::fflush(file_.get()) == 0 && !std::ferror(file_.get()), Exit::cannot_write,
              "tensorboard: cannot write {}: {}", path_, std::strerror(errno));
}

void write_tensorboard(Trainer& trainer, const std::string& unit) {
  check_input(!trainer.options().out.empty(), Exit::config,
              "tensorboard without a run directory; expected options.out");
  auto file = std::make_shared<std::optional<EventFile>>();
  auto step = [file, unit](Trainer&, const StepRecord& record) {
    const StepResult& r = record.result;
    auto write = [&](std::string_view tag, double value) { (*file)->scalar(r.step, tag, value); };
    write("train/loss", r.loss);
    write("train/learning_rate", r.lr);
    write("train/grad_norm", r.grad_norm);
    write("train/loss_scale", r.loss_scale);
    write("throughput/" + unit + "_per_second", r.weight / record.seconds);
    write("memory/max_bytes", r.memory_bytes);
    if (r.expert_load > 0) write("experts/load", r.expert_load);
    (*file)->flush();
  };
  auto validation = [file](Trainer& t, double loss) {
    (*file)->scalar(t.done(), "eval/loss", loss);
    for (auto& [name, value] : t.scores()) (*file)->scalar(t.done(), "eval/" + name, value);
    (*file)->flush();
  };
  trainer.on({.start = [file](Trainer& t) { file->emplace(t.options().out, t.done() + 1); },
              .step = step,
              .validation = validation,
              .reads_weights = false});
}

}  // namespace triax::parallel
