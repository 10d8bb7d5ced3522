#include "parallel/parity/digests.h"

#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "core/check.h"
#include "core/checksum.h"
#include "core/files.h"

namespace triax::parallel {
namespace {

constexpr const char* title = "triax replay: ";
constexpr uint64_t largest_table = uint64_t{1} << 28;

/// The parts of a line between tabs.
std::vector<std::string> cells(const std::string& line) {
  std::vector<std::string> all;
  for (size_t at = 0, end = 0; end != line.npos; at = end + 1) {
    end = line.find('\t', at);
    all.push_back(line.substr(at, end - at));
  }
  return all;
}

template <class T, class... Base> bool parses(const std::string& text, T& value, Base... base) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base...);
  return error == std::errc() && end == text.data() + text.size();
}

std::string bits(const Digest* d) {
  return d ? fmt::format("{}, norm {}, crc32c {:08x}", printable(d->type), d->norm, d->crc32c)
           : "nothing";
}

}  // namespace

Digest digest_of(const std::string& name, const Tensor& x) {
  double squares = 0;
  if (is_float(x.dtype()))
    for (double v : x.to(f64).to_host<double>()) squares += v * v;
  return {name, fmt::format("{} {}", x.dtype(), x.shape()), std::sqrt(squares),
          crc32c(x.data(), x.bytes())};
}

Digest digest_of(const std::string& name, double number) {
  return {name, "f64 []", std::abs(number), crc32c(&number, sizeof number)};
}

std::string describe(const DigestTable& table) {
  size_t wide = 5;
  for (auto& d : table.rows) wide = std::max(wide, d.type.size());
  std::string text = fmt::format("{:<8} {:>12}  {:<{}}  tensor\n", "crc32c", "norm", "shape", wide);
  for (auto& d : table.rows)
    text += fmt::format("{:08x} {:>12.6g}  {:<{}}  {}\n", d.crc32c, d.norm, d.type, wide, d.name);
  return text;
}

void save_table(const std::string& path, const DigestTable& table) {
  std::string text = title + table.of + "\n";
  for (auto& d : table.rows)
    text += fmt::format("{}\t{}\t{}\t{:08x}\n", d.name, d.type, d.norm, d.crc32c);
  disk().replace(path, text);
}

DigestTable load_table(const std::string& path) {
  std::string text = disk().read(path, largest_table);
  DigestTable table;
  std::set<std::string> names;
  int64_t number = 0;
  auto refuse = [&] {
    fail(Exit::data, "replay: {}:{}: expected a table that `replay --out FILE` wrote", path,
         number);
  };
  for (size_t at = 0, end = 0; at < text.size(); at = end + 1) {
    end = text.find('\n', at);
    std::string line = text.substr(at, end - at);
    if (++number == 1) {
      if (end == text.npos || !line.starts_with(title)) refuse();
      table.of = line.substr(std::char_traits<char>::length(title));
      continue;
    }
    auto parts = cells(line);
    Digest d;
    if (end == text.npos || parts.size() != 4 || !parses(parts[2], d.norm) ||
        !parses(parts[3], d.crc32c, 16) || !names.insert(parts[0]).second)
      refuse();
    d.name = parts[0], d.type = parts[1];
    table.rows.push_back(std::move(d));
  }
  if (table.rows.empty()) refuse();
  return table;
}

TableDifference compare(const DigestTable& before, const DigestTable& now) {
  TableDifference all;
  std::map<std::string, const Digest*> left;
  for (auto& d : before.rows) left[d.name] = &d;
  auto differs = [&](const std::string& name, const Digest* here, const Digest* there) {
    if (all.count++ == 0)
      all.first = fmt::format("{}: {}; there {}", printable(name), bits(here), bits(there));
  };
  for (auto& d : now.rows) {
    auto node = left.extract(d.name);
    const Digest* other = node ? node.mapped() : nullptr;
    if (!other || other->type != d.type || other->crc32c != d.crc32c) differs(d.name, &d, other);
  }
  for (auto& [name, other] : left) differs(name, nullptr, other);
  return all;
}

}  // namespace triax::parallel
