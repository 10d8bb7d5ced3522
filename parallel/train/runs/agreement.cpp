#include "triax/parallel/train/runs/agreement.h"

#include <elf.h>
#include <link.h>

#include <cstring>
#include <sstream>

#include "triax/core/check.h"
#include "triax/parallel/comm/together.h"

namespace triax::parallel {
namespace {

/// Returns the note of type NT_GNU_BUILD_ID in a segment of notes; empty if there is none.
std::string build_id_in(const char* at, const char* end) {
  auto padded = [](size_t n) { return (n + 3) & ~size_t{3}; };
  while (at + sizeof(ElfW(Nhdr)) <= end) {
    auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at);
    const char *name = at + sizeof *note, *text = name + padded(note->n_namesz);
    if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && !std::memcmp(name, "GNU", 4)) {
      std::string id;
      for (size_t i = 0; i < note->n_descsz; ++i) id += fmt::format("{:02x}", uint8_t(text[i]));
      return id;
    }
    at = text + padded(note->n_descsz);
  }
  return {};
}

}  // namespace

std::string build_id() {
  std::string id;
  auto executable = [](dl_phdr_info* info, size_t, void* found) {  // comes first
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const auto& segment = info->dlpi_phdr[i];
      if (segment.p_type != PT_NOTE) continue;
      auto* at = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
      auto& text = *static_cast<std::string*>(found);
      if (text.empty()) text = build_id_in(at, at + segment.p_memsz);
    }
    return 1;
  };
  dl_iterate_phdr(executable, &id);
  return id.empty() ? "unknown" : id;
}

void check_agreement(Communicator& ranks, const std::map<std::string, std::string>& mine) {
  std::string lines;
  for (auto& [name, value] : mine) lines += fmt::format("{} = {}\n", name, value);
  auto told = gather_text(ranks, lines);
  on_first(ranks, [&] {
    for (size_t r = 1; r < told.size(); ++r) {
      if (told[r] == told[0]) continue;
      std::istringstream first(told[0]), other(told[r]);
      std::string a, b;
      do {
        if (!std::getline(first, a)) a = "(nothing)";
        if (!std::getline(other, b)) b = "(nothing)";
      } while (a == b);
      fail(Exit::config,
           "ranks disagree about the run\n  rank 0: {}\n  rank {}: {}\n"
           "  Start every rank with the same program, flags, configuration and data.",
           a, r, b);
    }
  });
}

}  // namespace triax::parallel
