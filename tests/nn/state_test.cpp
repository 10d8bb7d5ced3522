#include "triax/nn/state.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "tests/support/expect_error.h"
#include "tests/support/faulty_files.h"
#include "tests/support/temporary_directory.h"
#include "triax/core/check.h"
#include "triax/core/memory.h"

namespace triax::nn {
namespace {

using namespace test;

constexpr DType dtypes[] = {f64, f32, f16, bf16, i64, i32, u8};

std::string bytes_of(const Tensor& x) {
  Tensor y = x.contiguous();
  return y.bytes() ? std::string(static_cast<const char*>(y.data()), y.bytes()) : "";
}

Tensor counting(const Shape& shape, DType dtype) {
  std::vector<float> values(size_t(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = float(i);
  return from_host(values, shape, cpu).to(dtype);
}

// What tests/reference/safetensors_from_python.py holds.
std::vector<NamedTensor> reference_tensors() {
  std::vector<NamedTensor> tensors;
  for (DType t : dtypes) {
    tensors.push_back({fmt::format("matrix.{}", name(t)), counting({2, 3}, t)});
    tensors.push_back({fmt::format("scalar.{}", name(t)), full({}, 5, t, cpu)});
    tensors.push_back({fmt::format("none.{}", name(t)), zeros({2, 0}, t, cpu)});
  }
  return tensors;
}
const Metadata reference_metadata = {{"format", "pt"}, {"note", "quotes \" and ünïcode"}};

void expect_equal(const std::vector<NamedTensor>& wanted, const TensorFile& file) {
  ASSERT_EQ(file.entries().size(), wanted.size());
  for (const auto& [name, value] : wanted) {
    Tensor x = file.read(name);
    EXPECT_EQ(x.dtype(), value.dtype()) << name;
    EXPECT_EQ(x.shape(), value.shape()) << name;
    EXPECT_EQ(bytes_of(x), bytes_of(value)) << name;
  }
}

TEST(State, RoundTripOfEveryDtype) {
  TemporaryDirectory dir;
  save_tensors(dir / "a.safetensors", reference_tensors(), reference_metadata);
  TensorFile file(dir / "a.safetensors");
  expect_equal(reference_tensors(), file);
  EXPECT_EQ(file.metadata(), reference_metadata);
  EXPECT_EQ(load_tensors(dir / "a.safetensors").size(), reference_tensors().size());
  if (const char* keep = std::getenv("TRIAX_KEEP_SAFETENSORS"))  // to show to Python
    save_tensors(keep, reference_tensors(), reference_metadata);
}

TEST(State, ReadsWhatPythonWrote) {
  TensorFile file(TRIAX_TEST_REFERENCE "/safetensors_from_python.safetensors");
  expect_equal(reference_tensors(), file);
  EXPECT_EQ(file.metadata(), reference_metadata);
}

TEST(State, EqualInputGivesEqualAlignedBytes) {
  TemporaryDirectory dir;
  auto tensors = reference_tensors();
  save_tensors(dir / "a", tensors);
  std::reverse(tensors.begin(), tensors.end());
  save_tensors(dir / "b", tensors);
  std::string a = read_bytes(dir / "a");
  EXPECT_EQ(a, read_bytes(dir / "b"));
  uint64_t length;
  std::memcpy(&length, a.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  TensorFile file(dir / "a");
  for (const TensorEntry& e : file.entries()) EXPECT_EQ(e.begin % size_of(e.dtype), 0u) << e.name;
}

TEST(State, NoTensorsAtAll) {
  TemporaryDirectory dir;
  save_tensors(dir / "a", {});
  EXPECT_TRUE(load_tensors(dir / "a").empty());
}

TEST(State, AnyLayoutIsSavedRowMajor) {
  TemporaryDirectory dir;
  Tensor x = counting({3, 4}, f32);
  save_tensors(dir / "a", {{"t", x.transpose(0, 1)}, {"n", x.narrow(1, 1, 2)}});
  TensorFile file(dir / "a");
  EXPECT_EQ(bytes_of(file.read("t")), bytes_of(x.transpose(0, 1)));
  EXPECT_EQ(bytes_of(file.read("n")), bytes_of(x.narrow(1, 1, 2)));
  expect_data_error([&] { file.read("y"); }, {"no tensor y"});
}

TEST(State, NamesThatCannotBeSaved) {
  TemporaryDirectory dir;
  Tensor x = zeros({1}, f32, cpu);
  expect_error([&] { save_tensors(dir / "a", {{"__metadata__", x}}); }, {"reserved"});
  expect_error([&] { save_tensors(dir / "a", {{"x", x}, {"x", x}}); }, {"taken"});
  expect_error([&] { save_tensors(dir / "a", {{"\xff", x}}); }, {"UTF-8"});
  EXPECT_TRUE(disk().list(dir.path()).empty());
}

TEST(State, FilesThatAreNotThereOrNotFiles) {
  TemporaryDirectory dir;
  expect_error([&] { load_tensors(dir / "a"); }, {"No such file"}, Exit::not_found);
  expect_data_error([&] { load_tensors(dir.path()); }, {"not a plain file"});
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  expect_data_error([&] { load_tensors(dir / "pipe"); }, {"not a plain file"});
  expect_error([&] { save_tensors(dir / "no/a", {}); }, {"No such file"}, Exit::cannot_write);
}

TEST(State, AFailureAtAnyOperationKeepsTheOldFile) {
  TemporaryDirectory dir;
  save_tensors(dir / "a", {{"x", counting({4}, f32)}});
  const std::string before = read_bytes(dir / "a");
  for (int error : {ENOSPC, EIO}) {
    for (int at = 0;; ++at) {
      FaultyFiles files(at, error);
      try {
        save_tensors(dir / "a", {{"x", counting({5}, f32)}, {"y", counting({1}, f16)}}, {}, files);
        if (files.failed().empty()) {
          EXPECT_GE(at, 8) << "operations of a save";
          break;
        }
        ADD_FAILURE() << files.failed() << " failed and nobody noticed";
      } catch (const Error& e) {
        EXPECT_EQ(int(e.code()), int(error == EIO ? Exit::io : Exit::cannot_write)) << e.what();
        EXPECT_TRUE(says(std::string(e.what()), std::strerror(error)));
        EXPECT_TRUE(says(std::string(e.what()), files.failed_path()));
      }
      bool renamed = files.failed_path() == dir.path();  // only its directory was not synced
      EXPECT_EQ(read_bytes(dir / "a") == before, !renamed) << files.failed();
      EXPECT_EQ(disk().list(dir.path()).size(), 1u) << files.failed();
      write_bytes(dir / "a", before);
    }
    write_bytes(dir / "a", before);
  }
}

TEST(State, ADiskThatFillsUpHalfWay) {
  TemporaryDirectory dir;
  struct rlimit before {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = before;
  small.rlim_cur = 10'000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_error(
      [&] {
        save_tensors(dir / "a", {{"x", counting({5000}, f32)}});
      },
      {"File too large"}, Exit::cannot_write);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(disk().list(dir.path()).empty());
}

TEST(State, EveryTruncationIsNamed) {
  TemporaryDirectory dir;
  save_tensors(dir / "a", {{"x", counting({2, 3}, f32)}, {"y", counting({3}, u8)}});
  const std::string whole = read_bytes(dir / "a");
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    write_bytes(dir / "b", whole.substr(0, bytes));
    expect_data_error([&] { load_tensors(dir / "b"); }, {dir / "b"});
  }
  write_bytes(dir / "b", whole + '\0');
  expect_data_error([&] { load_tensors(dir / "b"); },
                    {"28 bytes of data; the header describes 27"});
}

TEST(State, EveryBitFlipIsAnErrorOrChangesWhatIsRead) {
  TemporaryDirectory dir;
  save_tensors(dir / "a", {{"x", counting({2, 3}, f32)}, {"y", counting({3}, u8)}}, {{"k", "v"}});
  const std::string whole = read_bytes(dir / "a");
  auto everything = [](const std::string& path) {
    TensorFile file(path);
    std::string all;
    for (const auto& [key, text] : file.metadata()) all += key + '=' + text + ';';
    for (const TensorEntry& e : file.entries())
      all += fmt::format("{} {} {};", e.name, e.dtype, e.shape) + bytes_of(file.read(e.name));
    return all;
  };
  const std::string good = everything(dir / "a");
  int refused = 0;
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = char(flipped[bit / 8] ^ (1 << bit % 8));
    write_bytes(dir / "b", flipped);
    try {
      EXPECT_NE(everything(dir / "b"), good) << "bit " << bit;
    } catch (const Error& e) {
      EXPECT_EQ(int(e.code()), int(Exit::data)) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 500);
}

TEST(State, AHeaderCannotMakeUsAllocateMoreThanTheFile) {
  TemporaryDirectory dir;
  const std::string json =
      R"({"x":{"dtype":"F32","shape":[1000000,1000000],"data_offsets":[0,4000000000000]}})";
  uint64_t length = json.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  write_bytes(dir / "a", bytes + json);
  int64_t before = memory::counter()->live();
  memory::counter()->reset_peaks();
  expect_data_error([&] { load_tensors(dir / "a"); }, {"0 bytes of data"});
  EXPECT_EQ(memory::counter()->peak(), before);

  length = uint64_t(1) << 62;
  std::memcpy(bytes.data(), &length, 8);
  write_bytes(dir / "a", bytes + json);
  expect_data_error([&] { load_tensors(dir / "a"); }, {"a header of 4611686018427387904 bytes"});
}

}  // namespace
}  // namespace triax::nn
