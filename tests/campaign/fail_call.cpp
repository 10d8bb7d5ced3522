// Preloaded into a program: lets one system call fail, once. FAIL_UNDER: only calls about paths
// below this directory, and their descriptors; FAIL_CALL: which, as `fsync`; FAIL_AT: the
// how-manieth of them, from 0; FAIL_ERRNO: how. Then the file FAIL_NOTE is made, so that a test
// knows whether there was such a call.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

std::string setting(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

bool is_watched(const char* path) {
  std::string under = setting("FAIL_UNDER");
  return !under.empty() && path && std::string_view(path).starts_with(under);
}

bool is_watched(int descriptor) {
  char path[4096] = "";
  std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  return ::readlink(link.c_str(), path, sizeof path - 1) > 0 && is_watched(path);
}

/// Shall this call fail?
template <class Where> bool fails(const char* call, Where where) {
  static std::atomic<int> seen = 0;
  if (setting("FAIL_CALL") != call || !is_watched(where)) return false;
  if (seen++ != std::atoi(setting("FAIL_AT").c_str())) return false;
  if (FILE* note = std::fopen(setting("FAIL_NOTE").c_str(), "w")) std::fclose(note);
  errno = std::atoi(setting("FAIL_ERRNO").c_str());
  return true;
}

bool fails(const char* call, int directory, const char* path) {
  return path[0] == '/' ? fails(call, path) : fails(call, directory);
}

/// What the C library has under this name.
template <class F> F next(F, const char* name) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* data, size_t n) {
  return fails("write", fd) ? -1 : next(&write, "write")(fd, data, n);
}

ssize_t pread(int fd, void* data, size_t n, off_t at) {
  return fails("pread", fd) ? -1 : next(&pread, "pread")(fd, data, n, at);
}

int fsync(int fd) { return fails("fsync", fd) ? -1 : next(&fsync, "fsync")(fd); }

int rename(const char* from, const char* to) noexcept {
  return fails("rename", to) ? -1 : next(&rename, "rename")(from, to);
}

int renameat2(int a, const char* from, int b, const char* to, unsigned flags) noexcept {
  return fails("renameat2", to) ? -1 : next(&renameat2, "renameat2")(a, from, b, to, flags);
}

int mkdir(const char* path, mode_t mode) noexcept {
  return fails("mkdir", path) ? -1 : next(&mkdir, "mkdir")(path, mode);
}

int unlinkat(int at, const char* path, int flags) noexcept {
  return fails("unlinkat", at, path) ? -1 : next(&unlinkat, "unlinkat")(at, path, flags);
}

int openat(int at, const char* path, int flags, ...) {  // std::filesystem's, of directories alone
  return fails("openat", at, path) ? -1 : next(&openat, "openat")(at, path, flags);
}

int fstat(int fd, struct stat* status) noexcept {
  return fails("fstat", fd) ? -1 : next(&fstat, "fstat")(fd, status);
}

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return fails("open", path) ? -1 : next(&open, "open")(path, flags, mode);
}
}
