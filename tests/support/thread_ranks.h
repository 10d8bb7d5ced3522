#pragma once
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "parallel/checkpoint/coordinator.h"

namespace triax::test {

/// Run `body` as `size` ranks, threads of this process, that can coordinate a checkpoint. Returns
/// what each rank threw (null: nothing). A rank that waits ten seconds for the others throws.
class ThreadRanks {
 public:
  static std::vector<std::exception_ptr> run(
      int size, const std::function<void(parallel::Coordinator&)>& body) {
    Meeting meeting{.texts = std::vector<std::string>(size_t(size))};
    std::vector<std::exception_ptr> thrown{size_t(size)};
    std::vector<std::thread> threads;
    for (int r = 0; r < size; ++r)
      threads.emplace_back([&, r] {
        Rank rank(meeting, r);
        try {
          body(rank);
        } catch (...) {
          thrown[size_t(r)] = std::current_exception();
        }
      });
    for (std::thread& t : threads) t.join();
    return thrown;
  }

 private:
  struct Meeting {
    std::vector<std::string> texts;
    std::mutex mutex;
    std::condition_variable all_here;
    size_t here = 0, round = 0;
  };
  class Rank final : public parallel::Coordinator {
   public:
    Rank(Meeting& m, int rank) : m_(m), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return int(m_.texts.size()); }
    std::string broadcast(const std::string& text) override {
      std::string first = exchange(text)[0];
      meet();
      return first;
    }
    std::vector<std::string> gather(const std::string& text) override {
      auto all = exchange(text);
      meet();
      if (rank_ != 0) all.clear();
      return all;
    }

   private:
    std::vector<std::string> exchange(const std::string& text) {
      m_.texts[size_t(rank_)] = text;
      meet();
      return m_.texts;
    }
    void meet() {
      std::unique_lock lock(m_.mutex);
      size_t round = m_.round;
      if (++m_.here == m_.texts.size()) {
        m_.here = 0;
        ++m_.round;
        m_.all_here.notify_all();
        return;
      }
      if (!m_.all_here.wait_for(lock, std::chrono::seconds(10), [&] { return m_.round != round; }))
        throw Error(Exit::peer_lost, "test: a rank did not come");
    }
    Meeting& m_;
    int rank_;
  };
};

}  // namespace triax::test
