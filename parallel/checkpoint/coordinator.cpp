#include "parallel/checkpoint/coordinator.h"

#include <new>

#include "core/check.h"

namespace triax::parallel {

namespace {

// Over the wire an error is `code, newline, place, newline, text`; success is nothing.
std::string attempt(const std::function<void()>& work) {
  auto line = [](Exit code, const std::string& place, const char* what) {
    return fmt::format("{}\n{}\n{}", int(code), place, what);
  };
  try {
    work();
  } catch (const Error& e) {
    return line(e.code(), e.place(), e.what());
  } catch (const std::bad_alloc&) {
    return line(Exit::memory, "", "checkpoint: out of host memory");
  } catch (const std::exception& e) {
    return line(Exit::internal, "", e.what());
  }
  return "";
}

}  // namespace

void together(Coordinator& ranks, const std::function<void()>& work) {
  std::string first;
  for (std::string& error : ranks.gather(attempt(work)))
    if (first.empty()) first = std::move(error);
  first = ranks.broadcast(first);
  if (first.empty()) return;
  size_t code_end = first.find('\n'), place_end = first.find('\n', code_end + 1);
  throw Error(Exit(std::stoi(first)), first.substr(place_end + 1),
              first.substr(code_end + 1, place_end - code_end - 1));
}

std::string on_first(Coordinator& ranks, const std::function<std::string()>& work) {
  std::string text;
  together(ranks, [&] {
    if (ranks.rank() == 0) text = work();
  });
  return ranks.broadcast(text);
}

}  // namespace triax::parallel
