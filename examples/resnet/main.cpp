// ResNet-18 on CIFAR-10's binary files, on any mesh:
//   triax-resnet train --data cifar-10-batches-bin --comm threads --ranks 4 --pp 2 --zero 1
#include "examples/resnet/image_data.h"
#include "examples/resnet/resnet.h"
#include "triax/optim/sgd.h"
#include "triax/parallel/program/program.h"

using namespace triax;

namespace {

parallel::Settings settings_of(resnet::ResNetConfig& c, optim::SgdOptions& sgd) {
  parallel::SettingTraits size{.range = {1, 1 << 16}};
  parallel::SettingTraits say{.on_resume = parallel::OnResume::say};
  parallel::SettingGroup settings("Model");
  return settings.add("width", "N", "channels of the first of four stages", &c.width, size)
      .add("blocks", "N", "residual blocks in a stage; 2: ResNet-18", &c.blocks, size)
      .add("bn-samples", "N",
           "samples whose statistics a batch norm shares; more than a micro-batch has: over "
           "replicas (SyncBN)",
           &c.bn_samples, {.range = {1, 1 << 20}})
      .add("momentum", "X", "of SGD", &sgd.momentum,
           {.range = {0, 1, true},
            .on_resume = parallel::OnResume::say,
            .deepspeed = "optimizer.params.momentum"})
      .add("momentum-form", "NAME", "heavy-ball or nesterov",
           parallel::choice(sgd.form, {{"heavy-ball", SgdRule::Form::heavy_ball},
                                       {"nesterov", SgdRule::Form::nesterov}}),
           say)
      .add("weight-decay|wd", "X", "L2 penalty of matrices and convolutions", &sgd.weight_decay,
           {.on_resume = parallel::OnResume::say, .deepspeed = "optimizer.params.weight_decay"});
}

}  // namespace

int main(int argc, char** argv) {
  resnet::ResNetConfig c;
  images::DataOptions data;
  optim::SgdOptions sgd{.momentum = 0.9, .weight_decay = 5e-4, .form = SgdRule::Form::nesterov};
  parallel::ProgramOptions o{.name = "triax-resnet",
                             .what = "Trains a ResNet-18 on images of 32 x 32 pixels."};
  o.train.step.micro_batch = 64, o.train.step.clip = 0;
  o.train.lr = {.peak = 0.1, .low = 0, .warmup = -1, .steps = 0};
  o.train.step.optimizer = [&sgd](auto& slots) { return std::make_unique<optim::Sgd>(slots, sgd); };
  o.settings = parallel::joined({settings_of(c, sgd), images::image_settings(data)});
  o.parity_defaults = [&c](parallel::TrainOptions& train) {
    c.width = 4, c.bn_samples = 4;
    train.steps = 3;
    train.step.micro_batch = 4, train.step.global_batch = 16;
  };
  o.plan_defaults = [](parallel::TrainOptions& train) { train.step.micro_batch = 64; };
  o.task = [&] {
    images::ImageData read = images::read(data);
    data.augment = read.augment;  // a resumed run may spell the default out
    parallel::Task task = read.task();
    task.scores = {{"top1", parallel::top_k(1)}, {"top5", parallel::top_k(5)}};
    task.build = [c](auto& tp) { return std::make_unique<resnet::ResNet>(c, tp); };
    return task;
  };
  return parallel::program(argc, argv, std::move(o));
}
