#pragma once
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
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
  /// Returns its size in bytes, now.
  uint64_t size() const;
  /// Reads all of [offset, offset + bytes); a file that ends before that is Error 74.
  void read_at(uint64_t offset, void* to, size_t bytes) const;
  /// Appends bytes.
  void write(const void* from, size_t bytes);
  /// Waits until the bytes are on the disk (fsync).
  void sync();

 private:
  const Files* files_;
  std::string path_;
  int descriptor_;
};

enum class Links { follow, refuse };

/// The operations of the file system that triax uses, so that a test can let each one fail.
/// Failures are Errors `files: OPERATION PATH: reason`: 66 for input that is not there, 65 for
/// input that is no plain file, 73 for what cannot be written, 74 for input-output errors.
class Files {
 public:
  virtual ~Files() = default;

  /// Opens a plain file for reading; `refuse` fails if the last part of the path is a link.
  File open(const std::string& path, Links links = Links::follow) const;
  /// Opens a new file for writing; it must not exist.
  File create(const std::string& path) const;
  /// Returns a whole file of at most `limit` bytes; Error 65 if it is larger.
  std::string read(const std::string& path, uint64_t limit, Links links = Links::follow) const;
  /// Creates a file, writes `text`, syncs.
  void write(const std::string& path, const std::string& text) const;

  /// Replaces an existing file, or an existing empty directory, in one step.
  void rename(const std::string& from, const std::string& to) const;
  /// Exchanges two paths: in one step where the file system can, else in three. In between, the
  /// former `b` is at `a` + `aside`, and stays there if the process ends.
  void exchange(const std::string& a, const std::string& b) const;
  static constexpr const char* aside = "-aside";
  /// Replaces `path` in one step by the file that `write(name)` writes under a temporary name. If
  /// that fails, nothing is left of it.
  void replace(const std::string& path, const std::function<void(const std::string&)>& write) const;
  /// Replaces `path` in one step by a file with this text.
  void replace(const std::string& path, const std::string& text) const;
  /// Waits until names created in, renamed in or removed from a directory are on the disk.
  void sync_directory(const std::string& path) const;
  /// Makes a directory with its parents; does nothing if it exists.
  void make_directory(const std::string& path) const;
  /// Removes a file or a whole tree, links without following them. Does nothing if there is none.
  void remove(const std::string& path) const;

  /// True if there is anything, a plain file, or a directory, or a link to one; false also where it
  /// cannot be reached: opening it says why.
  bool exists(const std::string& path) const;
  bool is_file(const std::string& path) const;
  bool is_directory(const std::string& path) const;
  /// Returns the names in a directory, sorted; none if there is no directory of that name.
  std::vector<std::string> list(const std::string& path) const;

  /// Returns the errno that an operation shall fail with, 0 to let it run; asked before each.
  virtual int fault(const char* operation, const std::string& path) const;
};

/// Returns the file system as it is.
const Files& disk();

/// Returns digits that no other call, process or host gives: for names of temporary files.
std::string unique_suffix();
/// Returns the path of a file that comes with this program, in ../share/triax beside it; empty if
/// it is not there.
std::string shipped_file(const std::string& name);
/// Returns the directory part of `path`, `.` if there is none.
std::string parent_directory(const std::string& path);
/// Returns the text with `?` for each byte of a control character (C0, DEL, and C1 in UTF-8), which
/// a terminal obeys.
std::string without_controls(std::string text);
/// Returns text from a file, fit for a message: control characters as `?`, at most 120 bytes.
std::string printable(const std::string& text);
/// Returns the parts of a text between separators: itself where there is none.
std::vector<std::string> parts_of(std::string_view text, char separator);
/// True if all of the text is a number of this type, in `base` if one is given; it is then
/// `number`.
template <class T, class... Base>
bool parse_number(std::string_view text, T& number, Base... base) {
  const char* last = text.data() + text.size();
  auto [end, error] = std::from_chars(text.data(), last, number, base...);
  return error == std::errc() && end == last;
}

}  // namespace triax
