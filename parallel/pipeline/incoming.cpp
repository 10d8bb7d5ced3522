#include "parallel/pipeline/incoming.h"

#include <utility>

namespace triax::parallel {

Incoming::Incoming(const std::vector<Handover>& all, Ends ends) : ends_(std::move(ends)) {
  for (const Handover& what : all) lines_[&ends_.channel(what)].rest.push_back(what);
  if (ends_.ahead)
    for (auto& [from, line] : lines_) post(*from, line);
}

void Incoming::post(Communicator& from, Line& line) {
  if (line.rest.empty()) return;
  const Boundary& b = ends_.boundary(line.rest.front());
  line.rest.pop_front();
  line.x = from.empty(b.shape, b.dtype);
  line.work = from.recv(line.x, 1 - from.rank());
}

Tensor Incoming::take(const Handover& what) {
  Communicator& from = ends_.channel(what);
  Line& line = lines_.at(&from);
  if (!line.x.defined()) post(from, line);
  line.work.wait();
  Tensor x = std::exchange(line.x, {});
  if (ends_.ahead) post(from, line);
  return x;
}

}  // namespace triax::parallel
