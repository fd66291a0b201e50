/* The four files of MNIST and of data sets in its form. */
#ifndef LS_REFERENCE_DATA_MNIST_FILES_H
#define LS_REFERENCE_DATA_MNIST_FILES_H

#include "reference/dataset.h"

/* Opens the images and labels of a split in folder: "train-images-idx3-ubyte" and so on, with '.' for the last '-' of the
 * stem too ("train-images.idx3-ubyte"), each plain or with ".gz". Checked completely: 28x28, labels 0..9, equal counts. */
ls_rc ls_mnist_files_open(const char *folder, ls_split split, ls_dataset *out);

/* The sizes alone, from the headers of both files. */
ls_rc ls_mnist_files_shape(const char *folder, ls_split split, ls_dataset *out);

#endif
