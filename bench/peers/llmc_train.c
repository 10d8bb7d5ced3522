// A main for llm.c's CPU trainer (github.com/karpathy/llm.c), which trains on given windows of
// tokens and writes the metrics file that measure.py reads. compare_llmc.py compiles and runs it:
//
//     llmc_train MODEL WINDOWS METRICS BATCH TIME STEPS LR
//
// WINDOWS holds int32 [steps, batch, time + 1]: inputs and, one further, targets.

#define TESTING  // leaves out the main of train_gpt2.c
#include "train_gpt2.c"

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

// Fills inputs and targets [B, T] with the next windows [B, T + 1] of the file.
static void read_batch(FILE* windows, int* inputs, int* targets, int B, int T) {
    int window[T + 1];
    for (int b = 0; b < B; b++) {
        freadCheck(window, sizeof(int), T + 1, windows);
        memcpy(inputs + b * T, window, T * sizeof(int));
        memcpy(targets + b * T, window + 1, T * sizeof(int));
    }
}

int main(int argc, char** argv) {
    if (argc != 8) {
        fprintf(stderr, "usage: llmc_train MODEL WINDOWS METRICS BATCH TIME STEPS LR\n");
        return 64;
    }
    FILE *windows = fopenCheck(argv[2], "rb"), *metrics = fopenCheck(argv[3], "w");
    int B = atoi(argv[4]), T = atoi(argv[5]), steps = atoi(argv[6]);
    float lr = atof(argv[7]);
    GPT2 model;
    gpt2_build_from_checkpoint(&model, argv[1]);
    int* inputs = mallocCheck(B * T * sizeof(int));
    int* targets = mallocCheck(B * T * sizeof(int));
    for (int step = 1; step <= steps; step++) {
        double begin = now();
        read_batch(windows, inputs, targets, B, T);
        gpt2_forward(&model, inputs, targets, B, T);
        gpt2_zero_grad(&model);
        gpt2_backward(&model);
        gpt2_update(&model, lr, 0.9f, 0.95f, 1e-8f, 0.0f, step);
        double seconds = now() - begin;
        fprintf(metrics, "{\"step\": %d, \"loss\": %.9g, ", step, model.mean_loss);
        fprintf(metrics, "\"tokens\": %d, \"seconds\": %.9g, ", B * T, seconds);
        fprintf(metrics, "\"tokens_per_second\": %.9g}\n", B * T / seconds);
        fflush(metrics);
    }
    gpt2_free(&model);
    free(inputs);
    free(targets);
    fcloseCheck(windows);
    fcloseCheck(metrics);
    return 0;
}
