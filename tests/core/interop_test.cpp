#include "triax/core/interop/interop.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "triax/core/interop/dlpack.h"
#include "triax/core/interop/npy.h"
#include "triax/core/io/files.h"

namespace triax {
namespace {

using namespace test;

TEST(Interop, BorrowedMemoryIsSharedAndGoesBackOnce) {
  std::vector<float> theirs{1, 2, 3, 4, 5, 6};
  int released = 0;
  {
    Tensor x = borrow(theirs.data(), {2, 3}, f32, cpu, [&] { ++released; });
    EXPECT_EQ(x.data(), theirs.data());
    theirs[4] = 50;
    EXPECT_EQ(x.narrow(0, 1, 1).to_host<float>(), (std::vector<float>{4, 50, 6}));
    Tensor last = x.transpose(0, 1).narrow(0, 2, 1);
    x = {};
    EXPECT_EQ(released, 0);
    fill_(last, 9);
  }
  EXPECT_EQ(released, 1);
  EXPECT_EQ(theirs, (std::vector<float>{1, 2, 9, 4, 50, 9}));
  EXPECT_EQ(borrow(nullptr, {0, 3}, f32, cpu, [&] { ++released; }).numel(), 0);
  EXPECT_EQ(released, 2);
  EXPECT_EQ(borrow(theirs.data(), {}, f32).item(), 1);
  expect_error([] { borrow(nullptr, {2}, i64); }, {"borrow: null for [2] of i64"});
  expect_error([&] { borrow(theirs.data(), {-1}, f32); }, {"borrow: memory for [-1] of f32"});
  expect_error([&] { borrow(reinterpret_cast<char*>(theirs.data()) + 2, {1}, f32); },
               {"begins within an element"});
}

TEST(Interop, BorrowedMemoryIsNotHandedOutAgain) {
  std::vector<float> theirs(4);
  Tensor x = borrow(theirs.data(), {4}, f32);
  x.storage()->release();
  expect_error([&] { x.storage()->restore(); }, {"borrow: 16 bytes that went back"});
}

TEST(Interop, ValuesArePrintedAsNumPyDoes) {
  EXPECT_EQ(to_string(full({}, 1.5, f64, cpu)), "1.5");
  EXPECT_EQ(to_string(from_host<int64_t>({1, 2, 3, 4}, {2, 2}, cpu)), "[[1, 2],\n [3, 4]]");
  EXPECT_EQ(to_string(from_host<float>({1, -2, 0.1f, 1e9f}, {2, 1, 2}, cpu)),
            "[[[1, -2]],\n\n [[0.1, 1e+09]]]");
  EXPECT_EQ(to_string(from_host<float>({1, 2, 3, 4}, {2, 2}, cpu).transpose(0, 1)),
            "[[1, 3],\n [2, 4]]");
  EXPECT_EQ(to_string(zeros({0, 2}, bf16, cpu)), "[]");
  EXPECT_EQ(to_string(from_host<int64_t>({1234567, (int64_t(1) << 53) + 1}, {2}, cpu)),
            "[1234567, 9007199254740993]");
  std::vector<int32_t> many(3000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = int32_t(i);
  EXPECT_EQ(to_string(from_host(many, {1500, 2}, cpu)),
            "[[0, 1],\n [2, 3],\n [4, 5],\n ...,\n [2994, 2995],\n [2996, 2997],\n [2998, 2999]]");
}

/// Writes a file as NumPy does.
std::string npy(const TemporaryDirectory& folder, const std::string& header,
                const std::string& values) {
  std::string path = folder.path() + "/x.npy",
              padded = header + std::string(117 - header.size(), ' ');
  std::ofstream(path, std::ios::binary)
      << std::string("\x93NUMPY\x01\0\x76\0", 10) + padded + "\n" + values;
  return path;
}

TEST(Npy, ReadsWhatNumPyWrites) {
  TemporaryDirectory folder;
  std::string path = npy(folder, "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 1), }",
                         std::string("\1\0\0\0\2\1\0\0", 8));
  Tensor x = load_npy(path);
  EXPECT_EQ(x.shape(), (Shape{2, 1}));
  EXPECT_EQ(x.to_host<int32_t>(), (std::vector<int32_t>{1, 258}));
  npy(folder, "{'descr': '|b1', 'fortran_order': True, 'shape': (3,), }", std::string("\1\0\1", 3));
  EXPECT_EQ(load_npy(path).to_host<uint8_t>(), (std::vector<uint8_t>{1, 0, 1}));
  npy(folder, "{'descr': '<f8', 'fortran_order': False, 'shape': (), }", std::string(8, '\0'));
  EXPECT_EQ(load_npy(path).item(), 0);
}

TEST(Npy, IsReadAsItWasWritten) {
  TemporaryDirectory folder;
  std::string path = folder.path() + "/x.npy";
  for (DType dtype : {f32, f64, f16, i32, i64, u8})
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 3, 4}, Shape{0, 5}}) {
      Tensor x = full(shape, 7, dtype, cpu);
      save_npy(path, x);
      Tensor y = load_npy(path);
      EXPECT_EQ(y.shape(), shape);
      EXPECT_EQ(y.dtype(), dtype);
      EXPECT_EQ(y.to(f64).to_host<double>(), x.to(f64).to_host<double>());
      EXPECT_EQ((disk().read(path, 4096).find('\n') + 1) % 64, 0);
    }
  Tensor wide = from_host<float>({1, 2, 3, 4, 5, 6}, {2, 3}, cpu);
  save_npy(path, wide.transpose(0, 1));
  EXPECT_EQ(load_npy(path).to_host<float>(), (std::vector<float>{1, 4, 2, 5, 3, 6}));
  expect_config_error([&] { save_npy(path, zeros({2}, bf16, cpu)); }, {"bf16", "save x.to(f32)"});
}

TEST(Npy, RefusesOtherFiles) {
  TemporaryDirectory folder;
  std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
  auto refused = [&](const std::string& header, const std::string& values, const char* why) {
    std::string path = npy(folder, header, values);
    expect_data_error([&] { load_npy(path); }, {path, why});
  };
  refused(good, std::string(7, 'x'), "7 bytes of values; expected those of [2] f32");
  refused("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", "", "dtype `>f4`");
  refused("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", "", "ascontiguousarray");
  refused("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", "", "shape with `-2`");
  refused("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 4), }", "",
          "0 bytes of values");
  refused("{'descr': '<f4', 'fortran_order': False}", "",
          "expected descr, fortran_order and shape");
  refused("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1), }", "",
          "at most 8 sizes");
  std::string path = folder.path() + "/other";
  for (const char* text : {"", "PK\3\4 an archive of arrays"}) {
    std::ofstream(path, std::ios::binary) << text;
    expect_data_error([&] { load_npy(path); }, {path});
  }
}

TEST(DLPack, SharesMemoryBothWays) {
  Tensor x = from_host<float>({1, 2, 3, 4, 5, 6}, {2, 3}, cpu);
  DLManagedTensor* out = to_dlpack(x.narrow(0, 1, 1));
  EXPECT_EQ(out->dl_tensor.data, x.data<float>() + 3);
  EXPECT_EQ(out->dl_tensor.ndim, 2);
  EXPECT_EQ(out->dl_tensor.strides[0], 3);
  Tensor y = from_dlpack(out);
  x = {};
  EXPECT_EQ(y.to_host<float>(), (std::vector<float>{4, 5, 6}));
  for (DType dtype : {f32, f64, f16, bf16, i32, i64, u8})
    EXPECT_EQ(from_dlpack(to_dlpack(zeros({2, 0}, dtype, cpu))).dtype(), dtype);
}

TEST(DLPack, IsGivenBackOnceAndOnlyWhatWasTaken) {
  static int deleted;
  deleted = 0;
  float values[6] = {};
  int64_t shape[2] = {2, 3}, columns[2] = {1, 2};
  DLManagedTensor theirs{};
  theirs.dl_tensor = {values, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, nullptr, 4};
  theirs.deleter = [](DLManagedTensor*) { ++deleted; };
  theirs.dl_tensor.shape = shape;
  EXPECT_EQ(from_dlpack(&theirs).data(), values + 1);
  EXPECT_EQ(deleted, 1);
  theirs.dl_tensor.strides = columns;
  expect_data_error([&] { from_dlpack(&theirs); }, {"row-major false"});
  theirs.dl_tensor.strides = nullptr;
  shape[0] = 0;
  EXPECT_EQ(from_dlpack(&theirs).numel(), 0);
  EXPECT_EQ(deleted, 2);
  theirs.dl_tensor.dtype.lanes = 4;
  expect_data_error([&] { from_dlpack(&theirs); }, {"from_dlpack: device type 1, type code 2"});
  EXPECT_EQ(deleted, 2);
}

}  // namespace
}  // namespace triax
