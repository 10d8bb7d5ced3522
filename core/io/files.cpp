#include "triax/core/io/files.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <random>
#include <system_error>

#include "triax/core/check.h"

namespace triax {

namespace {

namespace fs = std::filesystem;

enum class For { reading, writing };

[[noreturn]] void raise(const char* operation, const std::string& path, int error, For purpose) {
  Exit code = Exit::io;
  if (purpose == For::writing && error != EIO) code = Exit::cannot_write;
  if (purpose == For::reading) {
    if (error == ENOENT || error == ENOTDIR) code = Exit::not_found;
    if (error == ELOOP) code = Exit::data;
  }
  fail(code, "files: {} {}: {}", operation, path, std::generic_category().message(error));
}

// Runs `call` until it is not interrupted; returns its result or throws Error.
template <class Call>
auto attempt(const Files& files, const char* operation, const std::string& path, For purpose,
             Call&& call) {
  if (int error = files.fault(operation, path)) raise(operation, path, error, purpose);
  while (true) {
    auto result = call();
    if (result >= 0) return result;
    if (errno != EINTR) raise(operation, path, errno, purpose);
  }
}

constexpr size_t largest_transfer = size_t(1) << 30;  // Linux moves less than 2 GiB per call

}  // namespace

File::File(const Files& files, std::string path, int descriptor)
    : files_(&files), path_(std::move(path)), descriptor_(descriptor) {}

File::File(File&& o) noexcept
    : files_(o.files_), path_(std::move(o.path_)), descriptor_(o.descriptor_) {
  o.descriptor_ = -1;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);  // whoever writes has called sync() before
}

uint64_t File::size() const {
  struct stat status {};
  attempt(*files_, "size of", path_, For::reading, [&] { return ::fstat(descriptor_, &status); });
  return uint64_t(status.st_size);
}

void File::read_at(uint64_t offset, void* to, size_t bytes) const {
  auto* p = static_cast<char*>(to);
  while (bytes > 0) {
    auto n = attempt(*files_, "read", path_, For::reading, [&] {
      return ::pread(descriptor_, p, std::min(bytes, largest_transfer), off_t(offset));
    });
    check_input(n > 0, Exit::io, "files: read {}: it ends at byte {}; expected {} more", path_,
                offset, bytes);
    p += n;
    offset += uint64_t(n);
    bytes -= size_t(n);
  }
}

void File::write(const void* from, size_t bytes) {
  auto* p = static_cast<const char*>(from);
  while (bytes > 0) {
    auto n = attempt(*files_, "write", path_, For::writing,
                     [&] { return ::write(descriptor_, p, std::min(bytes, largest_transfer)); });
    p += n;
    bytes -= size_t(n);
  }
}

void File::sync() {
  attempt(*files_, "fsync", path_, For::writing, [&] { return ::fsync(descriptor_); });
}

File Files::open(const std::string& path, Links links) const {
  // Not blocking: a pipe in place of a file must not hang us before it is refused below.
  int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | (links == Links::refuse ? O_NOFOLLOW : 0);
  int descriptor =
      attempt(*this, "open", path, For::reading, [&] { return ::open(path.c_str(), flags); });
  File file(*this, path, descriptor);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) raise("open", path, errno, For::reading);
  check_input(S_ISREG(status.st_mode), Exit::data, "files: open {}: not a plain file", path);
  return file;
}

File Files::create(const std::string& path) const {
  int descriptor = attempt(*this, "create", path, For::writing, [&] {
    return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  });
  return File(*this, path, descriptor);
}

std::string Files::read(const std::string& path, uint64_t limit, Links links) const {
  File file = open(path, links);
  uint64_t size = file.size();
  check_input(size <= limit, Exit::data, "files: read {}: {} bytes; expected at most {}", path,
              size, limit);
  std::string text(size, '\0');
  file.read_at(0, text.data(), text.size());
  return text;
}

void Files::write(const std::string& path, const std::string& text) const {
  File file = create(path);
  file.write(text.data(), text.size());
  file.sync();
}

void Files::rename(const std::string& from, const std::string& to) const {
  attempt(*this, "rename to", to, For::writing, [&] { return ::rename(from.c_str(), to.c_str()); });
}

void Files::exchange(const std::string& a, const std::string& b) const {
  int error = fault("exchange", b);
  if (!error && ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) < 0)
    error = errno;
  if (!error) return;
  if (error != EINVAL && error != ENOSYS) raise("exchange", b, error, For::writing);
  std::string before = a + aside;  // network and overlay file systems
  rename(b, before);
  try {
    rename(a, b);
  } catch (const Error&) {
    (void)::rename(before.c_str(), b.c_str());
    throw;
  }
  rename(before, a);
}

void Files::replace(const std::string& path,
                    const std::function<void(const std::string&)>& write) const {
  std::string unfinished = path + ".tmp-" + unique_suffix();
  try {
    write(unfinished);
    rename(unfinished, path);
  } catch (...) {
    std::error_code ignored;  // the error that brought us here says more
    fs::remove(unfinished, ignored);
    throw;
  }
  sync_directory(parent_directory(path));
}

void Files::replace(const std::string& path, const std::string& text) const {
  replace(path, [&](const std::string& name) { write(name, text); });
}

void Files::sync_directory(const std::string& path) const {
  int descriptor = attempt(*this, "open", path, For::writing, [&] {
    return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  });
  File directory(*this, path, descriptor);
  directory.sync();
}

void Files::make_directory(const std::string& path) const {
  if (int error = fault("create", path)) raise("create", path, error, For::writing);
  std::error_code error;
  fs::create_directories(path, error);
  if (error) raise("create", path, error.value(), For::writing);
}

void Files::remove(const std::string& path) const {
  if (int error = fault("remove", path)) raise("remove", path, error, For::writing);
  std::error_code error;
  fs::remove_all(path, error);
  if (error) raise("remove", path, error.value(), For::writing);
}

bool Files::exists(const std::string& path) const {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool Files::is_file(const std::string& path) const {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

bool Files::is_directory(const std::string& path) const {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::vector<std::string> Files::list(const std::string& path) const {
  if (int error = fault("list", path)) raise("list", path, error, For::reading);
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(path, error), end;
  for (; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  bool missing = error.value() == ENOENT || error.value() == ENOTDIR;
  if (error && !missing) raise("list", path, error.value(), For::reading);
  std::sort(names.begin(), names.end());
  return names;
}

int Files::fault(const char*, const std::string&) const { return 0; }

const Files& disk() {
  static const Files real;  // without state
  return real;
}

std::string unique_suffix() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

std::string shipped_file(const std::string& name) {
  fs::path program = fs::read_symlink("/proc/self/exe");
  std::string path = program.parent_path().parent_path() / "share/triax" / name;
  return fs::exists(path) ? path : "";
}

std::string parent_directory(const std::string& path) {
  std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string without_controls(std::string text) {
  auto is = [&](size_t i, int first, int last) {
    int byte = i < text.size() ? static_cast<unsigned char>(text[i]) : -1;
    return byte >= first && byte <= last;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (is(i, 0xC2, 0xC2) && is(i + 1, 0x80, 0x9F)) text[i] = text[i + 1] = '?';
    if (is(i, 0, 0x1F) || is(i, 0x7F, 0x7F)) text[i] = '?';
  }
  return text;
}

std::string printable(const std::string& text) {
  constexpr size_t limit = 120;
  return without_controls(text.size() <= limit ? text : text.substr(0, limit) + "...");
}

std::vector<std::string> parts_of(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  for (char c : text)
    if (c == separator) parts.emplace_back();
    else parts.back() += c;
  return parts;
}

}  // namespace triax
