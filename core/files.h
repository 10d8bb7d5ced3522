#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace triax {

class Files;

/// An open file. Closes itself. Throws Error 74 (or 73 while writing) with path and reason.
class File {
 public:
  File(const Files& files, std::string path, int descriptor);
  ~File();
  File(File&& o) noexcept;
  File& operator=(File&&) = delete;

  const std::string& path() const { return path_; }
  /// Bytes, now.
  uint64_t size() const;
  /// All of [offset, offset + bytes); a file that ends before that is Error 74.
  void read_at(uint64_t offset, void* to, size_t bytes) const;
  /// Append.
  void write(const void* from, size_t bytes);
  /// Wait until the bytes are on the disk (fsync).
  void sync();

 private:
  const Files* files_;
  std::string path_;
  int descriptor_;
};

enum class Links { follow, refuse };

/// What triax does with the file system, so that a test can let each operation fail. Failures are
/// Errors `files: OPERATION PATH: reason`: 66 for input that is not there, 65 for
/// input that is no plain file, 73 for what cannot be written, 74 for input-output errors.
class Files {
 public:
  virtual ~Files() = default;

  /// Open a plain file for reading; `refuse` fails if the last part of the path is a link.
  File open(const std::string& path, Links links = Links::follow) const;
  /// Open a new file for writing; it must not exist.
  File create(const std::string& path) const;
  /// A whole file of at most `limit` bytes; Error 65 if it is larger.
  std::string read(const std::string& path, uint64_t limit, Links links = Links::follow) const;
  /// Create a file, write `text`, sync.
  void write(const std::string& path, const std::string& text) const;

  /// Replaces an existing file, or an existing empty directory, in one step.
  void rename(const std::string& from, const std::string& to) const;
  /// Let two paths change places: in one step where the file system can, else in three. What `b`
  /// was is at `a` + `aside` in between, and stays there if the process ends.
  void exchange(const std::string& a, const std::string& b) const;
  static constexpr const char* aside = "-aside";
  /// `write(name)` writes a file under a temporary name, which then replaces `path` in one step. If
  /// that fails, nothing is left of it.
  void replace(const std::string& path, const std::function<void(const std::string&)>& write) const;
  /// The same with this text.
  void replace(const std::string& path, const std::string& text) const;
  /// Wait until names created in, renamed in or removed from a directory are on the disk.
  void sync_directory(const std::string& path) const;
  /// With its parents; nothing if it exists.
  void make_directory(const std::string& path) const;
  /// A file or a whole tree; links are removed, not followed. Nothing if it does not exist.
  void remove(const std::string& path) const;

  /// Is there a directory, or a link to one?
  bool is_directory(const std::string& path) const;
  /// Names in a directory, sorted; none if there is no directory of that name.
  std::vector<std::string> list(const std::string& path) const;

  /// Asked before every operation: the errno it shall fail with, 0 to let it run.
  virtual int fault(const char* operation, const std::string& path) const;
};

/// The file system as it is.
const Files& disk();

/// Digits that no other call, process or host gives: for names of temporary files.
std::string unique_suffix();
/// The directory part of `path`, `.` if there is none.
std::string parent_directory(const std::string& path);
/// With `?` for each byte of a control character (C0, DEL, and C1 in UTF-8), which a terminal
/// obeys.
std::string without_controls(std::string text);
/// Text from a file, fit for a message: control characters as `?`, at most 120 bytes.
std::string printable(const std::string& text);

}  // namespace triax
