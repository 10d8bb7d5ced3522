#include "triax/core/storage.h"

#include "triax/core/check.h"
#include "triax/core/noted_storages.h"

namespace triax {

namespace {

thread_local StorageList* noting = nullptr;

}  // namespace

Allocator::~Allocator() = default;

NotedStorages::NotedStorages(StorageList& list) : Scoped(noting, &list) {}

std::shared_ptr<Storage> make_storage(size_t bytes, Device device,
                                      std::shared_ptr<Allocator> allocator) {
  auto storage = std::make_shared<Storage>(bytes, device, std::move(allocator));
  if (noting && memory::current_kind() == memory::activations) noting->push_back(storage);
  return storage;
}

Storage::Storage(size_t bytes, Device device, std::shared_ptr<Allocator> allocator)
    : bytes_(bytes),
      device_(device),
      kind_(memory::current_kind()),
      allocator_(std::move(allocator)),
      counter_(memory::counter()) {
  restore();
}

Storage::~Storage() { release(); }

void* Storage::data() const {
  check(present_,
        "storage: {} bytes on {} used while released; a ZeRO-3 weight outside its unit, a gradient "
        "bucket after its reduction, or a tensor that a layer keeps for all micro-batches, made "
        "without memory::Scope(memory::buffers) in one that is offloaded?",
        bytes_, device_);
  return data_;
}

void Storage::release() {
  if (!present_) return;
  present_ = false;
  if (data_) allocator_->deallocate(data_, bytes_);
  data_ = nullptr;
  counter_->add(kind_, -int64_t(bytes_));
}

void Storage::restore() {
  if (present_) return;
  if (bytes_ > 0) data_ = allocator_->allocate(bytes_);
  present_ = true;
  counter_->add(kind_, int64_t(bytes_));
}

std::shared_ptr<Storage> Storage::take() {
  check(present_, "storage: take of {} bytes that are released", bytes_);
  auto other = std::make_shared<Storage>(0, device_, allocator_);
  std::swap(other->data_, data_);
  other->bytes_ = bytes_;
  other->kind_ = kind_;
  other->counter_ = counter_;
  present_ = false;
  return other;
}

void Storage::take_from(Storage& other) {
  check(
      !present_ && other.present_ && bytes_ == other.bytes_ && device_ == other.device_,
      "storage: take_from: {} bytes ({}) from {} bytes ({}); expected equally many, here released "
      "and there present",
      bytes_, present_ ? "present" : "released", other.bytes_,
      other.present_ ? "present" : "released");
  std::swap(data_, other.data_);
  std::swap(allocator_, other.allocator_);
  other.present_ = false;
  other.counter_->add(other.kind_, -int64_t(bytes_));
  present_ = true;
  counter_->add(kind_, int64_t(bytes_));
}

}  // namespace triax
