#include "triax/optim/state_file.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/support/expect_error.h"
#include "tests/support/offload_files.h"
#include "tests/support/temporary_directory.h"
#include "triax/optim/offload.h"

namespace triax::optim {
namespace {

using namespace test;
constexpr size_t block = StateFile::block;

/// Memory that a file can read into.
class Buffer {
 public:
  explicit Buffer(size_t bytes, int value = 0)
      : data_(static_cast<char*>(std::aligned_alloc(block, bytes)), &std::free) {
    std::memset(data_.get(), value, bytes);
  }
  char* data() const { return data_.get(); }

 private:
  std::unique_ptr<char, decltype(&std::free)> data_;
};

class StateFileTest : public testing::Test {
 protected:
  TemporaryDirectory directory_;
};

// Waited for in another order than they were started.
TEST_F(StateFileTest, KeepsWhatIsWritten) {
  constexpr size_t records = 40, bytes = 3 * block;
  StateFile file(directory_.path(), records * bytes);
  std::vector<Buffer> buffers;
  for (size_t i = 0; i < 4; ++i) buffers.emplace_back(bytes);
  for (size_t i = 0; i < records; i += 4) {
    uint64_t tickets[4];
    for (size_t k = 0; k < 4; ++k) {
      std::memset(buffers[k].data(), int(i + k), bytes);
      tickets[k] = file.write((i + k) * bytes, buffers[k].data(), bytes);
    }
    for (size_t k : {2, 0, 3, 1}) file.wait(tickets[k]);
  }
  for (size_t i = records; i-- > 0;) {
    Buffer& b = buffers[i % 4];
    file.wait(file.read(i * bytes, b.data(), bytes));
    for (size_t at = 0; at < bytes; ++at) ASSERT_EQ(b.data()[at], char(i)) << i << " at " << at;
  }
}

TEST_F(StateFileTest, HasNoNameAndIsZeroAtFirst) {
  StateFile file(directory_.path(), 2 * block);
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
  Buffer b(block, 7);
  file.wait(file.read(block, b.data(), block));
  EXPECT_EQ(std::string(b.data(), block), std::string(block, '\0'));
}

TEST_F(StateFileTest, WaitsForWhatIsUnderWay) {
  constexpr size_t bytes = 64 * block;
  Buffer written(bytes, 7);
  for (int i = 0; i < 20; ++i) {
    Buffer read(bytes);
    {
      StateFile file(directory_.path(), bytes);
      file.write(0, written.data(), bytes);
      file.read(0, read.data(), bytes);
    }
    ASSERT_EQ(std::memcmp(read.data(), written.data(), bytes), 0) << i;
  }
}

TEST_F(StateFileTest, NoticesThatItWasCut) {
  for (size_t left : {size_t(0), block, 2 * block, 2 * block + 17}) {
    StateFile file(directory_.path(), 8 * block);
    Buffer b(4 * block);
    file.wait(file.read(0, b.data(), 4 * block));
    ASSERT_EQ(cut_offload_files(directory_.path(), left), 1);
    uint64_t ticket = file.read(0, b.data(), 4 * block);
    for (int k = 0; k < 2; ++k)  // it does not recover
      expect_error([&] { file.wait(ticket); }, {"offload: ", directory_.path(), "ends there"},
                   Exit::io);
  }
}

TEST(StateFileErrors, ADirectoryThatWillNotDo) {
  TemporaryDirectory directory;
  write_bytes(directory / "file", "in the way");
  std::filesystem::create_directory(directory / "closed");
  ::chmod((directory / "closed").c_str(), 0555);
  auto refused = [](const std::string& path, const char* why, Exit code) {
    expect_error([&] { check_offload_directory(path); }, {"offload: " + path, why, "expected"},
                 code);
    expect_error([&] { StateFile file(path, block); }, {"offload: " + path, why, "expected"}, code);
  };
  refused(directory / "nowhere", "No such file", Exit::not_found);
  refused(directory / "file", "Not a directory", Exit::cannot_write);
  refused(directory / "file/below", "Not a directory", Exit::cannot_write);
  if (::geteuid() != 0) refused(directory / "closed", "Permission denied", Exit::cannot_write);
  else refused("/sys", "denied", Exit::cannot_write);  // closed to root too
  check_offload_directory(directory.path());
  EXPECT_TRUE(std::filesystem::is_empty(directory / "closed"));
}

/// No file may grow beyond so many bytes while this lives.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : signal_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &outer_);
    rlimit limit{bytes, outer_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &outer_);
    ::signal(SIGXFSZ, signal_);
  }

 private:
  rlimit outer_{};
  sighandler_t signal_;
};

TEST(StateFileErrors, ADiskWithoutRoomShowsAtOnce) {
  TemporaryDirectory directory;
  FileLimit limit(16 * block);
  StateFile fits(directory.path(), 16 * block);
  expect_error([&] { StateFile file(directory.path(), 17 * block); },
               {"offload: " + directory.path(), "expected room for 69632 bytes"},
               Exit::cannot_write);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace triax::optim
