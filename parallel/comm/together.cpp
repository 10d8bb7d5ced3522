#include "parallel/comm/together.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <typeinfo>

#include "core/check.h"
#include "parallel/comm/process.h"

namespace triax::parallel {
namespace {

Tensor bytes_of(const std::string& text, int64_t length) {
  Tensor t = zeros({length}, u8, cpu);
  if (!text.empty()) std::memcpy(t.data(), text.data(), text.size());
  return t;
}

std::string text_of(const Tensor& bytes, int64_t begin, int64_t length) {
  return std::string(static_cast<const char*>(bytes.data()) + begin, static_cast<size_t>(length));
}

// Over the wire an error is `code, newline, place, newline, text`; success is nothing.
std::string attempt(const std::function<void()>& work) {
  auto line = [](Exit code, const std::string& place, const std::string& what) {
    return fmt::format("{}\n{}\n{}", int(code), place, what);
  };
  try {
    work();
  } catch (const Error& e) {
    return line(e.code(), e.place(), e.what());
  } catch (const std::exception& e) {
    return line(Exit(exit_code(e)), "", reason(e));
  }
  return "";
}

}  // namespace

std::string broadcast_text(Communicator& ranks, const std::string& text) {
  Tensor length = full({1}, double(text.size()), i64, cpu);
  ranks.broadcast(length, 0).wait();
  auto n = int64_t(length.item());
  Tensor bytes = ranks.rank() == 0 ? bytes_of(text, n) : zeros({n}, u8, cpu);
  ranks.broadcast(bytes, 0).wait();
  return text_of(bytes, 0, n);
}

std::vector<std::string> gather_text(Communicator& ranks, const std::string& text) {
  Tensor length = full({1}, double(text.size()), i64, cpu);
  Tensor lengths = zeros({ranks.size()}, i64, cpu);
  ranks.all_gather(length, lengths).wait();
  auto sizes = lengths.to_host<int64_t>();
  int64_t longest = *std::max_element(sizes.begin(), sizes.end());
  Tensor all = zeros({ranks.size() * longest}, u8, cpu);
  ranks.gather(bytes_of(text, longest), all, 0).wait();
  std::vector<std::string> texts;
  if (ranks.rank() == 0)
    for (size_t r = 0; r < sizes.size(); ++r)
      texts.push_back(text_of(all, int64_t(r) * longest, sizes[r]));
  return texts;
}

void together(Communicator& ranks, const std::function<void()>& work) {
  std::string first;
  for (std::string& error : gather_text(ranks, attempt(work)))
    if (first.empty()) first = std::move(error);
  first = broadcast_text(ranks, first);
  if (first.empty()) return;
  size_t code_end = first.find('\n'), place_end = first.find('\n', code_end + 1);
  throw Error(Exit(std::stoi(first)), first.substr(place_end + 1),
              first.substr(code_end + 1, place_end - code_end - 1));
}

void on_first(Communicator& ranks, const std::function<void()>& work) {
  together(ranks, [&] {
    if (ranks.rank() == 0) work();
  });
}

std::string text_of_first(Communicator& ranks, const std::function<std::string()>& work) {
  std::string text;
  on_first(ranks, [&] { text = work(); });
  return broadcast_text(ranks, text);
}

void rethrow_from(const std::string& place) try { throw; } catch (const Error& e) {
  if (typeid(e) != typeid(Error)) throw;  // told apart by its type
  throw Error(e.code(), fmt::format("{}: {}", place, e.what()), e.place());
} catch (const std::bad_alloc&) {
  throw;
} catch (const std::exception& e) {
  throw Error(Exit(exit_code(e)), fmt::format("{}: {}", place, e.what()));
}

}  // namespace triax::parallel
