#include "bench/commands.h"

#include <stddef.h>

const ls_command ls_commands[] = {
    {NULL, NULL, NULL},
};
