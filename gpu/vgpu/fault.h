/* Accesses to memory that a mode has closed: one line that says whose it was, then the process ends with exit code 3. */
#ifndef LS_GPU_VGPU_FAULT_H
#define LS_GPU_VGPU_FAULT_H

/* Catches such accesses from now on; what no mode knows goes on to whoever handled the signal before. */
void vgpu_fault_catch(void);

#endif
