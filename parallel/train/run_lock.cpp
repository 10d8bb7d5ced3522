#include "parallel/train/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "core/check.h"

namespace triax::parallel {
namespace {

std::string holder() {
  char host[256] = "?", when[64] = "";
  ::gethostname(host, sizeof host - 1);
  std::time_t now = std::time(nullptr);
  std::tm local{};
  std::strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", ::localtime_r(&now, &local));
  return fmt::format("process {} on {} since {}", ::getpid(), host, when);
}

std::string read_all(int descriptor) {
  char text[512] = "";
  auto n = ::pread(descriptor, text, sizeof text - 1, 0);
  return n > 0 ? std::string(text, size_t(n)) : "a job that is starting";
}

}  // namespace

RunLock::RunLock(const std::string& directory) {
  std::string path = directory + "/lock";
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  check_input(descriptor_ >= 0, Exit::cannot_write, "run directory: cannot write {}: {}", path,
              std::strerror(errno));
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    std::string who = read_all(descriptor_);
    ::close(descriptor_);
    fail(Exit::config,
         "run directory {} is in use by {}\n  Wait for it, stop it, or choose another --out. "
         "Nothing was changed.",
         directory, who);
  }  // a file system without locks: nothing to hold, training goes on
  std::string who = holder();
  bool written = ::ftruncate(descriptor_, 0) == 0 &&
                 ::pwrite(descriptor_, who.data(), who.size(), 0) == ssize_t(who.size());
  if (written) return;
  int error = errno;
  ::close(descriptor_);
  fail(Exit::cannot_write, "run directory: cannot write {}: {}", path, std::strerror(error));
}

RunLock::~RunLock() { ::close(descriptor_); }

}  // namespace triax::parallel
