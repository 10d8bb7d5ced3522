#include "parallel/comm/processes/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <utility>

namespace triax::parallel {

Segment::Segment(int descriptor, size_t bytes) : descriptor_(descriptor), bytes_(bytes) {
  if (descriptor_ < 0) return;
  void* data =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor_, 0);
  if (data != MAP_FAILED) data_ = static_cast<std::byte*>(data);
}

Segment::Segment(Segment&& o) noexcept
    : descriptor_(std::exchange(o.descriptor_, -1)),
      bytes_(o.bytes_),
      data_(std::exchange(o.data_, nullptr)) {}

Segment::~Segment() {
  close();
  if (data_) ::munmap(data_, bytes_);
}

Segment Segment::create(size_t bytes) {
  int descriptor = ::memfd_create("triax", MFD_CLOEXEC);
  if (descriptor >= 0 && ::ftruncate(descriptor, off_t(bytes)) != 0) {
    ::close(descriptor);
    descriptor = -1;
  }
  return {descriptor, bytes};
}

Segment Segment::open(const Handle& handle, size_t bytes) {
  // The kernel lets only processes of the same user follow these links.
  std::string path =
      "/proc/" + std::to_string(handle.process) + "/fd/" + std::to_string(handle.descriptor);
  Segment other(::open(path.c_str(), O_RDWR | O_CLOEXEC), bytes);
  Handle found = other.handle();
  bool same = other.usable() && found.device == handle.device && found.inode == handle.inode;
  return same ? std::move(other) : Segment();
}

Segment::Handle Segment::handle() const {
  struct stat status {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) return {};
  return {::getpid(), descriptor_, status.st_dev, status.st_ino};
}

void Segment::close() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

}  // namespace triax::parallel
