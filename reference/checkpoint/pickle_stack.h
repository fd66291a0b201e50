/* Private to the reader of pickles: what its opcodes do with the stack and the memo. One line and LS_BAD_INPUT when a pickle
 * asks for more than there is. */
#ifndef LS_REFERENCE_CHECKPOINT_PICKLE_STACK_H
#define LS_REFERENCE_CHECKPOINT_PICKLE_STACK_H

#include "reference/checkpoint/pickle.h"

/* Room for the values of LS_STATE_MAX_TENSORS tensors, some fifty of 80 bytes each, and for what grows by doubling. */
enum { LS_PICKLE_BUDGET = 128 << 20 };

/* NULL is refused: its allocation has told why. */
ls_rc ls_pickle_push(ls_pickle *p, ls_pickle_value *value);
/* The value `below` the top; a mark is none. */
ls_rc ls_pickle_peek(const ls_pickle *p, size_t below, ls_pickle_value **out);
ls_rc ls_pickle_pop(ls_pickle *p, ls_pickle_value **out);

/* The last `count` values, or those above the last mark, become one tuple. */
ls_rc ls_pickle_make_tuple(ls_pickle *p, size_t count);
ls_rc ls_pickle_make_marked_tuple(ls_pickle *p);
/* The last `count` values, or those above the last mark, go into the container below them, a list or a dict. */
ls_rc ls_pickle_store_last(ls_pickle *p, ls_pickle_kind kind, size_t count);
ls_rc ls_pickle_store_marked(ls_pickle *p, ls_pickle_kind kind);

/* Remembers the top under a number, or under the next free one; pushes what is remembered. */
ls_rc ls_pickle_memo_put(ls_pickle *p, size_t index);
ls_rc ls_pickle_memo_next(ls_pickle *p);
ls_rc ls_pickle_memo_get(ls_pickle *p, size_t index);

#endif
