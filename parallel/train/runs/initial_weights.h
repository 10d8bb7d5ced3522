#pragma once
#include <string>

#include "triax/parallel/checkpoint/checkpoint.h"
#include "triax/parallel/settings/setting.h"
#include "triax/parallel/train/model/task.h"
#include "triax/parallel/train/step/step.h"

namespace triax::parallel {

/// The heading of settings that make the model: `--init` takes them from the checkpoint.
inline constexpr const char* model_group = "Model";

/// Gives the settings that make the model the values that the checkpoint was saved with, and
/// returns what else it carries. `path`: a checkpoint, or a run directory, whose newest is taken.
/// Throws Error 65, 66 or 74.
CheckpointState take_model_settings(const Settings& settings, const std::string& path);

/// Returns a checkpoint's weight, in f32 where a run in bf16 or fp16 kept a master copy.
Tensor stored_weight(Checkpoint& checkpoint, const std::string& name, const Part& part,
                     Weights which = Weights::trained);

/// Collective. Writes such weights into pieces of parameters, whatever their dtype, one at a time.
void fill_weights(Checkpoint& checkpoint, const std::vector<Piece>& pieces, Communicator& ranks,
                  Weights which = Weights::trained);

/// Returns the flag `--weights trained|average`.
Settings weights_setting(const std::string& group, Weights& which);
/// Throws Error 78 if an average is asked for, and the run that saved the checkpoint kept none.
void check_weights(const Checkpoint& checkpoint, Weights which);

/// Collective. Writes the weights of `o.init`, a checkpoint or a run directory's newest, saved on
/// any mesh in any dtype, into a step that has not updated anything yet. Parameters that match
/// `o.init_new`, and adapters that it lacks, stay as the model makes them, and so does optimizer
/// state, but for copies of the weights in it. Throws Error 78 if the checkpoint is of a model with
/// other settings (said, and no error, with `o.init_new`), has another text under the name of one
/// of the task's attachments (a tokenizer: its weights are of other tokens), or no parameter
/// matches a pattern; 65 if one of the two has a tensor that the other lacks or has of another
/// shape.
void start_from(const TrainOptions& o, const Task& task, Step& step, Communicator& ranks);

}  // namespace triax::parallel
