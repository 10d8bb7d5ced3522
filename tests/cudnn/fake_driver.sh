#!/bin/sh
# fake_driver.sh STUB: the source of a libcuda.so.1 with the functions of the toolkit's stub, with
# which cuDNN compiles for GPUs that are not here. There is no device, nothing can be looked up by
# name, and code that is to be loaded is taken as it is.
set -e
echo 'extern "C" {'
echo 'int triax_fake_driver = 1;'
nm -D --defined-only "$1" | awk '$2 == "T" { print $3 }' | while read -r name; do
  case $name in
    cuGetProcAddress* | cuGetExportTable) echo "int $name() { return 500; }" ;; # CUDA_ERROR_NOT_FOUND
    cuLibraryLoadData | cuLibraryGetKernel)
      echo "int $name(void** made) { return *made = &triax_fake_driver, 0; }"
      ;;
    *) echo "int $name() { return 100; }" ;; # CUDA_ERROR_NO_DEVICE
  esac
done
echo '}'
