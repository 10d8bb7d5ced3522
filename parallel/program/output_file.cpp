#include "core/check.h"
#include "core/io/files.h"
#include "parallel/program/verbs.h"

namespace triax::parallel {

void check_output(const std::string& flag, const std::string& path) {
  std::string folder = parent_directory(path), trial = folder + "/.tmp-" + unique_suffix();
  check_input(disk().is_directory(folder), Exit::cannot_write,
              "{}={}: there is no directory {}\n  Make it, or choose another --{}.", flag,
              printable(path), printable(folder), flag);
  try {
    disk().replace(trial, "");  // leaves nothing if it fails
    disk().remove(trial);
  } catch (const Error& e) {
    std::string_view what = e.what();
    fail(Exit::cannot_write, "{}={}: no file can be made in {}: {}\n  Choose another --{}.", flag,
         printable(path), printable(folder), what.substr(what.rfind(": ") + 2), flag);
  }
}

}  // namespace triax::parallel
