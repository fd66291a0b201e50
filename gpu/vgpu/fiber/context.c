#include "gpu/vgpu/fiber/context.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu/base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#define FIBER_ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBER_ASAN
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define FIBER_TSAN
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FIBER_TSAN
#endif
#endif

#ifdef FIBER_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

enum {
    STACK_BYTES = 64 * 1024
}; /* kernels keep a few arrays of 16 lanes; sanitizers make frames several times larger */

static void (*enter)(void);
static fiber_context *departed; /* whom the last switch left */

/* On the new stack, right after a switch. */
static void arrive(fiber_context *self) {
#ifdef FIBER_ASAN
    __sanitizer_finish_switch_fiber(self == NULL ? NULL : self->fake_stack, &departed->stack, &departed->stack_bytes);
#else
    (void)self;
#endif
}

static void first_entry(void) {
    arrive(NULL);
    enter();
    abort(); /* entry must not return */
}

#ifdef FIBER_UCONTEXT

static void prepare(fiber_context *context) {
    if (getcontext(&context->registers) != 0) {
        abort(); /* fails for a bad pointer only */
    }
    context->registers.uc_stack.ss_sp = (void *)(uintptr_t)context->stack;
    context->registers.uc_stack.ss_size = context->stack_bytes;
    context->registers.uc_link = NULL;
    makecontext(&context->registers, first_entry, 0);
}

static void exchange(fiber_context *from, fiber_context *to) {
    if (swapcontext(&from->registers, &to->registers) != 0) {
        abort(); /* fails for a bad pointer only */
    }
}

#else

/* void fiber_exchange(void **save, void *to): the registers that a call keeps (System V ABI, x86-64) go to the stack, the
 * stack pointer to *save; then the same in reverse from the stack `to`. A swapcontext without its system call. */
void fiber_exchange(void **save, void *to);
__asm__(".text\n"
        ".p2align 4\n"
        ".globl fiber_exchange\n"
        ".hidden fiber_exchange\n"
        ".type fiber_exchange, @function\n"
        "fiber_exchange:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size fiber_exchange, . - fiber_exchange\n");

/* The stack as fiber_exchange leaves one: six registers and the address to go on at; above it a return address of 0, so
 * that first_entry finds the stack aligned as after a call. */
static void prepare(fiber_context *context) {
    uintptr_t *top = (uintptr_t *)((uintptr_t)context->stack + context->stack_bytes);
    top[-1] = 0;
    top[-2] = (uintptr_t)first_entry;
    for (int i = 3; i <= 8; i++) {
        top[-i] = 0;
    }
    context->stack_pointer = top - 8;
}

static void exchange(fiber_context *from, fiber_context *to) {
    fiber_exchange(&from->stack_pointer, to->stack_pointer);
}

#endif

void fiber_context_main(fiber_context *own) {
#ifdef FIBER_TSAN
    own->sanitizer = __tsan_get_current_fiber();
#else
    (void)own;
#endif
}

void fiber_switch(fiber_context *from, fiber_context *to) {
    departed = from;
#ifdef FIBER_ASAN
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->stack_bytes);
#endif
#ifdef FIBER_TSAN
    __tsan_switch_to_fiber(to->sanitizer, 0);
#endif
    exchange(from, to);
    arrive(from);
}

fiber_context *fiber_contexts_open(size_t count, void (*entry)(void)) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t each = STACK_BYTES + page; /* an overflow ends in the page below */
    fiber_context *contexts = ls_calloc(count, sizeof *contexts, "fibers");
    if (contexts == NULL) {
        return NULL;
    }
    char *stacks = mmap(NULL, count * each, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) {
        ls_notice("no %zu bytes for the stacks of fibers", count * each);
        free(contexts);
        return NULL;
    }
    enter = entry;
    for (size_t i = 0; i < count; i++) {
        if (mprotect(stacks + i * each, page, PROT_NONE) != 0) {
            ls_notice("no guard page below the stack of fiber %zu", i);
            (void)munmap(stacks, count * each);
            free(contexts);
            return NULL;
        }
        contexts[i].stack = stacks + i * each + page;
        contexts[i].stack_bytes = STACK_BYTES;
#ifdef FIBER_TSAN
        contexts[i].sanitizer = __tsan_create_fiber(0);
#endif
        prepare(&contexts[i]);
    }
    return contexts;
}
