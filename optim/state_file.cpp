#include "optim/state_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "core/check.h"
#include "core/files.h"

namespace triax::optim {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

bool no_room(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

/// A new file without a name; where the file system has none, one that loses its name at once.
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

/// 0, or why there is no room for so many bytes.
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

StateFile::StateFile(const StateFileOptions& o) : directory_(o.directory) {
  check_offload_directory(directory_);
  file_.value = open_nameless(directory_);
  int error = o.bytes > 0 ? reserve(file_.value, o.bytes) : 0;
  check_input(error == 0, no_room(error) ? Exit::cannot_write : Exit::io,
              "offload: {}: {}; expected room for {} bytes of optimizer state", directory_,
              reason(error), o.bytes);
  ::fcntl(file_.value, F_SETFL, O_DIRECT);  // if it cannot be, through the page cache
  using Engine = StateFileOptions::Engine;
  if (o.engine != Engine::thread) transfers_ = uring_transfers(file_.value, o.most);
  check(transfers_ || o.engine != Engine::uring, "offload: io_uring is not to be had here");
  if (!transfers_) transfers_ = thread_transfers(file_.value);
}

StateFile::~StateFile() {
  while (!under_way_.empty()) finish_one();
}

uint64_t StateFile::read(uint64_t offset, void* to, size_t bytes) {
  return start({Transfer::Kind::read, offset, static_cast<std::byte*>(to), bytes});
}

uint64_t StateFile::write(uint64_t offset, const void* from, size_t bytes) {
  auto* data = const_cast<std::byte*>(static_cast<const std::byte*>(from));  // only read
  return start({Transfer::Kind::write, offset, data, bytes});
}

uint64_t StateFile::start(const Transfer& t) {
  under_way_[++last_] = t;
  transfers_->start(t, last_);
  return last_;
}

void StateFile::wait(uint64_t ticket) {
  while (under_way_.contains(ticket)) finish_one();
  if (failure_) throw Error(Exit(failure_->code), failure_->text);
}

/// Of a transfer that moved only a part the rest is asked for again: if the file or the disk has
/// ended, that tells.
void StateFile::finish_one() {
  auto [ticket, result] = transfers_->next();
  Transfer& t = under_way_.at(ticket);
  if (result == -EINTR || result == -EAGAIN) return transfers_->start(t, ticket);
  size_t moved = result > 0 ? size_t(result) : 0;
  bool partly = moved > 0 && moved < t.bytes && moved % block == 0;
  if (!partly && moved < t.bytes)
    fail_first(t.kind, result < 0 ? int(-result) : 0, t.offset + moved);
  if (!partly) {
    under_way_.erase(ticket);
    return;
  }
  t.offset += moved, t.data += moved, t.bytes -= moved;
  transfers_->start(t, ticket);
}

void StateFile::fail_first(Transfer::Kind kind, int error, uint64_t at) {
  if (failure_) return;
  bool reading = kind == Transfer::Kind::read;
  failure_ = std::make_unique<Failure>(
      int(no_room(error) ? Exit::cannot_write : Exit::io),
      fmt::format("offload: {} the file in {} at byte {}: {}; expected it as long as it was made",
                  reading ? "read" : "write", directory_, at,
                  error == 0 ? "it ends there" : reason(error)));
}

}  // namespace triax::optim
