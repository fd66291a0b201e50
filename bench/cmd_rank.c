/* lockstep rank: the hidden rank program, started by the launcher. */
#include "bench/cmd.h"
#include "impls/options.h"
#include "impls/rank.h"

ls_rc ls_command_rank(int argc, char **argv) {
    ls_options options;
    bool help = false;
    LS_TRY(ls_options_parse(LS_COMMAND_RANK, argc, argv, &options, &help));
    return help ? LS_OK : ls_rank_main(&options.run);
}
