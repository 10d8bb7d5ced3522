#include "triax/parallel/train/step/digests.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "triax/core/check.h"
#include "triax/core/io/checksum.h"
#include "triax/core/io/files.h"

namespace triax::parallel {
namespace {

constexpr std::string_view first_words = "triax replay: ";
constexpr uint64_t largest_table = uint64_t{1} << 28;

/// Reads a line of to_lines. Returns true if it is one.
bool read(const std::string& line, Digest& d) {
  std::istringstream cells(line);
  std::string norm, crc;
  return std::getline(cells, d.name, '\t') && std::getline(cells, d.type, '\t') &&
         std::getline(cells, norm, '\t') && std::getline(cells, crc) &&
         parse_number(norm, d.norm) && parse_number(crc, d.crc32c, 16);
}

void expect_table(bool is_one, const std::string& where, int64_t line) {
  check_input(is_one, Exit::data, "{}:{}: expected a table that `replay --out FILE` wrote", where,
              line);
}

std::string bits(const Digest* d) {
  return d ? fmt::format("{}, norm {}, crc32c {:08x}", printable(d->type), d->norm, d->crc32c)
           : "nothing";
}

}  // namespace

Digest bits_of(std::string name, const Tensor& x) {
  Tensor host = x.detach().contiguous().to(cpu);
  return {std::move(name), fmt::format("{} {}", x.dtype(), x.shape()),
          crc32c(host.data(), host.bytes())};
}

Digest digest_of(std::string name, const Tensor& x) {
  Tensor host = x.detach().contiguous().to(cpu);
  Digest d = bits_of(std::move(name), host);
  double squares = 0;
  if (is_float(x.dtype()))
    for (double v : host.to(f64).to_host<double>()) squares += v * v;
  d.norm = std::sqrt(squares);
  return d;
}

std::string describe(const Digests& rows) {
  size_t wide = 5;
  for (auto& d : rows) wide = std::max(wide, d.type.size());
  std::string text = fmt::format("{:<8} {:>12}  {:<{}}  tensor\n", "crc32c", "norm", "shape", wide);
  for (auto& d : rows)
    text += fmt::format("{:08x} {:>12.6g}  {:<{}}  {}\n", d.crc32c, d.norm, d.type, wide, d.name);
  return text;
}

std::string to_lines(const Digests& rows) {
  std::string text;
  for (auto& d : rows)
    text += fmt::format("{}\t{}\t{}\t{:08x}\n", d.name, d.type, d.norm, d.crc32c);
  return text;
}

Digests from_lines(const std::string& text, const std::string& where, int64_t first) {
  std::istringstream lines(text);
  Digests rows;
  std::set<std::string> names;
  for (std::string line; std::getline(lines, line);) {
    Digest& d = rows.emplace_back();
    bool whole = !lines.eof() && read(line, d) && names.insert(d.name).second;
    expect_table(whole, where, first + std::ssize(rows) - 1);
  }
  return rows;
}

void save_table(const std::string& path, const DigestTable& table) {
  disk().replace(path, fmt::format("{}{}\n", first_words, table.of) + to_lines(table.rows));
}

DigestTable load_table(const std::string& path) {
  std::string text = disk().read(path, largest_table), where = "replay: " + path;
  size_t end = text.find('\n');
  expect_table(text.starts_with(first_words) && end != text.npos, where, 1);
  DigestTable table{text.substr(first_words.size(), end - first_words.size()),
                    from_lines(text.substr(end + 1), where, 2)};
  expect_table(!table.rows.empty(), where, 1);
  return table;
}

DigestDifference compare(std::span<const Digest> before, std::span<const Digest> now) {
  DigestDifference all;
  std::map<std::string, const Digest*> left;
  for (auto& d : before) left[d.name] = &d;
  auto differs = [&](const std::string& name, const Digest* here, const Digest* there) {
    if (all.count++ == 0)
      all.first = fmt::format("{}: {}; there {}", printable(name), bits(here), bits(there));
  };
  for (auto& d : now) {
    auto node = left.extract(d.name);
    const Digest* other = node ? node.mapped() : nullptr;
    if (!other || other->type != d.type || other->crc32c != d.crc32c) differs(d.name, &d, other);
  }
  for (auto& [name, other] : left) differs(name, nullptr, other);
  return all;
}

}  // namespace triax::parallel
