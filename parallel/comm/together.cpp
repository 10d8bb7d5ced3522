#include "triax/parallel/comm/together.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <sstream>
#include <typeinfo>

#include "triax/core/check.h"
#include "triax/parallel/comm/process.h"

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

// Runs `work`; returns its error as code, rank, place and text, a line each, or "" for success.
std::string attempt(const std::function<void()>& work, int rank) {
  auto lines = [&](const Error& e) {
    int from = e.rank() < 0 ? rank : e.rank();
    return fmt::format("{}\n{}\n{}\n{}", int(e.code()), from, e.place(), e.what());
  };
  try {
    work();
  } catch (const Error& e) {
    return lines(e);
  } catch (const std::exception& e) {
    return lines(Error(Exit(exit_code(e)), reason(e)));
  }
  return "";
}

Error error_in(const std::string& lines) {
  std::istringstream in(lines);
  std::string code, rank, place;
  std::getline(in, code), std::getline(in, rank), std::getline(in, place);
  return {Exit(std::stoi(code)), lines.substr(size_t(in.tellg())), place, std::stoi(rank)};
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
  auto sizes = numbers_of_all(ranks, std::vector{int64_t(text.size())});
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
  int rank = ranks.group().members[size_t(ranks.rank())];
  for (std::string& error : gather_text(ranks, attempt(work, rank)))
    if (first.empty()) first = std::move(error);
  first = broadcast_text(ranks, first);
  if (!first.empty()) throw error_in(first);
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
  throw e.saying(fmt::format("{}: {}", place, e.what()));
} catch (const std::bad_alloc&) {
  throw;
} catch (const std::exception& e) {
  throw Error(Exit(exit_code(e)), fmt::format("{}: {}", place, e.what()));
}

}  // namespace triax::parallel
