#include "tests/gpu_on_cpu/libraries/nccl_board.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "triax/parallel/comm/movement.h"

namespace triax::gpu_on_cpu::nccl {

using parallel::Call;

struct Board::Shared {
  pthread_mutex_t mutex;
  std::atomic<uint32_t> changes;
  int cliques;
  Clique all[most_cliques];
};

namespace {

struct Id {
  int process, file;
};

std::mutex boards_mutex;
auto& boards = *new std::map<std::pair<int, int>, std::shared_ptr<Board>>;  // by id

}  // namespace

ncclUniqueId Board::make() {
  int file = memfd_create("nccl", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, sizeof(Shared)) != 0) std::abort();
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) std::abort();
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&static_cast<Shared*>(memory)->mutex, &attributes);
  munmap(memory, sizeof(Shared));
  ncclUniqueId id{};
  Id named{getpid(), file};
  std::memcpy(id.internal, &named, sizeof named);
  return id;
}

std::shared_ptr<Board> Board::of(const ncclUniqueId& id) {
  Id named;
  std::memcpy(&named, id.internal, sizeof named);
  std::lock_guard guard(boards_mutex);
  auto& board = boards[{named.process, named.file}];
  if (board) return board;
  int file = open_in_process(named.process, named.file);
  if (file >= 0) board = std::make_shared<Board>(file);
  return board;
}

Board::Board(int file) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) std::abort();
  shared_ = static_cast<Shared*>(memory);
}

void Board::lock() {
  if (pthread_mutex_lock(&shared_->mutex) == EOWNERDEAD)  // killed under the lock
    pthread_mutex_consistent(&shared_->mutex);
}
void Board::unlock() { pthread_mutex_unlock(&shared_->mutex); }

void Board::notify() {
  ++shared_->changes;
  syscall(SYS_futex, &shared_->changes, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void Board::sleep() {
  constexpr timespec a_moment{.tv_sec = 0, .tv_nsec = 5'000'000};
  uint32_t seen = shared_->changes;
  unlock();
  syscall(SYS_futex, &shared_->changes, FUTEX_WAIT, seen, &a_moment, nullptr, 0);
  lock();
}

int Board::clique_of(int parent, int number, int color, int size) {
  for (int i = 0; i < shared_->cliques; ++i) {
    const Clique& c = shared_->all[i];
    if (c.parent == parent && c.number == number && c.color == color) return i;
  }
  if (shared_->cliques == most_cliques || size > most_ranks)
    refuse("too many communicators or ranks");
  Clique& made = shared_->all[shared_->cliques];
  made.parent = parent, made.number = number, made.color = color, made.size = size;
  return shared_->cliques++;
}

void Board::refuse(const char* why) {
  std::fprintf(stderr, "gpu_on_cpu: nccl: %s\n", why);
  std::abort();
}

Board::Clique& Board::clique(int index) { return shared_->all[index]; }

bool Link::has_room(const Brought& part, size_t room) const {
  return left < most && bytes + part.bytes() <= std::min(room, most_bytes);
}

void Link::leave(const Brought& part) {
  what[left++] = {part.dtype, part.numel};
  std::memcpy(data + bytes, address_of(part.from), part.bytes());
  bytes += part.bytes();
}

bool Link::take(const Brought& part) {
  if (what[0].dtype != part.dtype || what[0].numel != part.numel) return false;
  std::memcpy(address_of(part.to), data, part.bytes());
  bytes -= part.bytes();
  std::memmove(data, data + part.bytes(), bytes);
  std::memmove(what, what + 1, size_t(--left) * sizeof what[0]);
  return true;
}

int64_t Board::send(Clique& clique, Link& link, const Brought& part) {
  if (link.meeting.here || !link.has_room(part, options().nccl_room))
    return come(clique, link.meeting, 0, 2, part);
  link.leave(part);
  return Link::over;
}

int64_t Board::receive(Clique& clique, Link& link, const Brought& part) {
  if (link.left == 0) return come(clique, link.meeting, 1, 2, part);
  if (!link.take(part)) std::fill_n(clique.errors, clique.size, ncclInvalidUsage);
  Meeting<2>& waiting = link.meeting;
  if (waiting.here && link.has_room(waiting.parts[0], options().nccl_room)) {
    link.leave(waiting.parts[0]);
    waiting.here = 0, ++waiting.over;
  }
  notify();
  return Link::over;
}

bool Board::move_all(Clique& clique, const Brought* parts, int parties) {
  Call first = parts[0].call();
  parallel::RankBuffers buffers;
  ncclResult_t error = ncclSuccess;
  for (int i = 0; i < parties; ++i) {
    const Brought& b = parts[i];
    bool fits = first.is_message() ? b.dtype == first.dtype && b.numel == first.numel
                                   : b.call().matches(first);
    void *from = address_of(b.from), *to = address_of(b.to);
    bool gone = !from != !b.from.process || !to != !b.to.process;
    if (!fits || gone) error = gone ? ncclRemoteError : ncclInvalidUsage;
    buffers.from.push_back(static_cast<const std::byte*>(from));
    buffers.to.push_back(static_cast<std::byte*>(to));
  }
  if (error == ncclSuccess) parallel::move(first, buffers, 0, parallel::elements(first, parties));
  for (int i = 0; i < clique.size && error != ncclSuccess; ++i) clique.errors[i] = error;
  return error == ncclSuccess;
}

}  // namespace triax::gpu_on_cpu::nccl
