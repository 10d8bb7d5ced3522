#include "triax/optim/state_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/optim/offload.h"

namespace triax::optim {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

bool no_room(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

/// Opens a new file without a name, or, where the file system has none, unlinks it at once.
int open_nameless(const std::string& directory) {
  if (int file = ::open(directory.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600); file >= 0)
    return file;
  std::string path = directory + "/triax-offload-" + unique_suffix();
  int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  int error = errno;
  check_input(file >= 0, Exit::cannot_write,
              "offload: {}: {}; expected a directory in which files can be made", directory,
              reason(error));
  ::unlink(path.c_str());
  return file;
}

/// Reserves so many bytes; returns 0, or the errno that says why there is no room.
int reserve(int file, uint64_t bytes) {
  while (::fallocate(file, 0, 0, off_t(bytes)) != 0) {
    if (errno == EOPNOTSUPP || errno == ENOSYS)
      return ::ftruncate(file, off_t(bytes)) == 0 ? 0 : errno;  // writing will tell
    if (errno != EINTR) return errno;
  }
  return 0;
}

}  // namespace

void check_offload_directory(const std::string& directory) {
  struct stat status {};
  bool found = ::stat(directory.c_str(), &status) == 0;
  int error = errno;
  check_input(found, error == ENOENT ? Exit::not_found : Exit::cannot_write,
              "offload: {}: {}; expected a directory in which files can be made", directory,
              reason(error));
  ::close(open_nameless(directory));
}

StateFile::Descriptor::~Descriptor() {
  if (value >= 0) ::close(value);
}

StateFile::StateFile(std::string directory, uint64_t bytes) : directory_(std::move(directory)) {
  check_offload_directory(directory_);
  file_.value = open_nameless(directory_);
  int error = bytes > 0 ? reserve(file_.value, bytes) : 0;
  check_input(error == 0, no_room(error) ? Exit::cannot_write : Exit::io,
              "offload: {}: {}; expected room for {} bytes of what is offloaded", directory_,
              reason(error), bytes);
  ::fcntl(file_.value, F_SETFL, O_DIRECT);  // if it cannot be, through the page cache
  thread_ = std::thread([this] { serve(); });
}

StateFile::~StateFile() {
  {
    std::lock_guard guard(lock_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

uint64_t StateFile::read(uint64_t offset, void* to, size_t bytes) {
  return start({Transfer::Kind::read, offset, static_cast<std::byte*>(to), bytes});
}

uint64_t StateFile::write(uint64_t offset, const void* from, size_t bytes) {
  auto* data = const_cast<std::byte*>(static_cast<const std::byte*>(from));  // only read
  return start({Transfer::Kind::write, offset, data, bytes});
}

uint64_t StateFile::start(const Transfer& t) {
  std::lock_guard guard(lock_);
  waiting_.push_back(t);
  changed_.notify_all();
  return ++started_;
}

void StateFile::wait(uint64_t ticket) {
  std::unique_lock guard(lock_);
  changed_.wait(guard, [&] { return ended_ >= ticket; });
  if (failure_) throw *failure_;
}

/// Runs the thread: all transfers that were started, also those that nobody waits for.
void StateFile::serve() {
  std::unique_lock guard(lock_);
  while (true) {
    changed_.wait(guard, [&] { return closing_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    Transfer t = waiting_.front();
    waiting_.pop_front();
    guard.unlock();
    std::optional<Error> failure = run(t);
    guard.lock();
    if (!failure_) failure_ = std::move(failure);
    ++ended_;
    changed_.notify_all();
  }
}

/// Runs a transfer. If only a part was moved it asks for the rest: if the file or the disk has
/// ended, that tells.
std::optional<Error> StateFile::run(Transfer t) const {
  while (t.bytes > 0) {
    auto at = off_t(t.offset);
    ssize_t moved = t.kind == Transfer::Kind::read ? ::pread(file_.value, t.data, t.bytes, at)
                                                   : ::pwrite(file_.value, t.data, t.bytes, at);
    if (moved < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (moved < 0) return failed(t, errno);
    t.offset += uint64_t(moved), t.data += moved, t.bytes -= size_t(moved);
    if (t.bytes > 0 && (moved == 0 || size_t(moved) % block != 0)) return failed(t, 0);
  }
  return std::nullopt;
}

Error StateFile::failed(const Transfer& t, int error) const {
  return Error(no_room(error) ? Exit::cannot_write : Exit::io,
               fmt::format("offload: {} the file in {} at byte {}: {}; expected it as long as it "
                           "was made",
                           t.kind == Transfer::Kind::read ? "read" : "write", directory_, t.offset,
                           error == 0 ? "it ends there" : reason(error)));
}

}  // namespace triax::optim
