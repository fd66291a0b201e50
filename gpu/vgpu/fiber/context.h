/* Stacks and the switch between them. */
#ifndef LS_GPU_VGPU_FIBER_CONTEXT_H
#define LS_GPU_VGPU_FIBER_CONTEXT_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>

#if !defined(__x86_64__) || defined(LS_FIBER_UCONTEXT)
#define FIBER_UCONTEXT
#include <ucontext.h>
#endif

typedef struct fiber_context {
#ifdef FIBER_UCONTEXT
    ucontext_t registers;
#else
    void *stack_pointer;
#endif
    const void *stack; /* lowest address */
    size_t stack_bytes;
    void *fake_stack;    /* AddressSanitizer's, while another context runs */
    void *sanitizer;     /* ThreadSanitizer's name of this context */
    jmp_buf restart;     /* for the user: where an abandoned fiber goes on */
    unsigned user_value; /* for the user */
} fiber_context;

/* count contexts, each of which enters entry at its first switch; entry must not return. They live as long as the process.
 * NULL when memory is short. */
fiber_context *fiber_contexts_open(size_t count, void (*entry)(void));

/* Names the calling thread's own stack as a context to switch from and back to. */
void fiber_context_main(fiber_context *own);

/* Leaves from (the running context) for to; returns when something switches back to from. */
void fiber_switch(fiber_context *from, fiber_context *to);

#endif
