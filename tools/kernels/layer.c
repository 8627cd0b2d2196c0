// A Vulkan layer that asks the driver for the statistics of each compute pipeline, as its compiler knows them:
// registers, spills, shared memory, waves. `tools/kernels/run.sh` compiles it, and turns it on.
//
//     PIPELINES_OUT   the file that gets the statistics
//     MODULES_OUT     the folder that gets each module in SPIR-V, once, named for its contents (default: none)
//
// The file has a line for each pipeline, with tabs between its parts: "begin" and the kernel's name before it is
// compiled, so that a compiler that dies has named what it died of; then "end", the name, the milliseconds and
// NAME=VALUE for each statistic. A pipeline that the driver refused has "refused", the name and the result.
//
// Only what stands between the program and this purpose is intercepted: making an instance, a device, modules and
// pipelines. And since a shim never says how far its card is, the layer says so: a submission is over at once.

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

#define API __attribute__((visibility("default")))

static PFN_vkGetInstanceProcAddr instance_next;
static VkInstance the_instance;

// A program here opens few devices, one after the other. All pipelines are of the device that they name.
typedef struct {
    VkDevice device;
    PFN_vkGetDeviceProcAddr next;
    PFN_vkQueueSubmit submit;
    PFN_vkDestroySemaphore destroy_semaphore;
    PFN_vkCreateShaderModule create_module;
    PFN_vkCreateComputePipelines create;
    PFN_vkGetPipelineExecutablePropertiesKHR properties;
    PFN_vkGetPipelineExecutableStatisticsKHR statistics;
} Device;

enum { DEVICES = 64 };
static Device devices[DEVICES];
static int device_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static Device *of(VkDevice device) {
    for (int i = device_count; i-- > 0;)
        if (devices[i].device == device) return &devices[i];
    return NULL;
}

static FILE *out(void) {
    static FILE *file;
    if (!file) file = fopen(getenv("PIPELINES_OUT") ? getenv("PIPELINES_OUT") : "/dev/null", "a");
    if (!file) {
        perror("PIPELINES_OUT");
        exit(2);
    }
    return file;
}

// The loader hands a layer the next one's functions in a list of its own kind.
static VkLayerInstanceCreateInfo *instance_link(const VkInstanceCreateInfo *info) {
    VkLayerInstanceCreateInfo *link = (void *)info->pNext;
    const VkStructureType type = VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO;
    while (link && (link->sType != type || link->function != VK_LAYER_LINK_INFO)) link = (void *)link->pNext;
    return link;
}

static VkLayerDeviceCreateInfo *device_link(const VkDeviceCreateInfo *info) {
    VkLayerDeviceCreateInfo *link = (void *)info->pNext;
    const VkStructureType type = VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO;
    while (link && (link->sType != type || link->function != VK_LAYER_LINK_INFO)) link = (void *)link->pNext;
    return link;
}

static VkResult create_instance(const VkInstanceCreateInfo *info, const VkAllocationCallbacks *memory,
                                VkInstance *instance) {
    VkLayerInstanceCreateInfo *link = instance_link(info);
    if (!link) return VK_ERROR_INITIALIZATION_FAILED;
    instance_next = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    PFN_vkCreateInstance create = (PFN_vkCreateInstance)instance_next(NULL, "vkCreateInstance");
    VkResult result = create(info, memory, instance);
    if (result == VK_SUCCESS) the_instance = *instance;
    return result;
}

static VkResult create_device(VkPhysicalDevice physical, const VkDeviceCreateInfo *info,
                              const VkAllocationCallbacks *memory, VkDevice *device) {
    VkLayerDeviceCreateInfo *link = device_link(info);
    if (!link) return VK_ERROR_INITIALIZATION_FAILED;
    PFN_vkGetInstanceProcAddr next_instance = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    PFN_vkGetDeviceProcAddr next = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    PFN_vkCreateDevice create = (PFN_vkCreateDevice)next_instance(the_instance, "vkCreateDevice");

    // The program does not ask for the extension with the statistics, so it is added.
    const char **extensions = calloc(info->enabledExtensionCount + 1, sizeof *extensions);
    if (info->enabledExtensionCount)
        memcpy(extensions, info->ppEnabledExtensionNames, info->enabledExtensionCount * sizeof *extensions);
    extensions[info->enabledExtensionCount] = VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME;
    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR feature = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR,
        .pNext = (void *)info->pNext,
        .pipelineExecutableInfo = VK_TRUE,
    };
    VkDeviceCreateInfo more = *info;
    more.pNext = &feature;
    more.enabledExtensionCount++;
    more.ppEnabledExtensionNames = extensions;
    VkResult result = create(physical, &more, memory, device);
    free(extensions);
    if (result != VK_SUCCESS) return result;
    pthread_mutex_lock(&lock);
    if (device_count == DEVICES) device_count = 0;
    devices[device_count++] = (Device){
        .device = *device,
        .next = next,
        .submit = (PFN_vkQueueSubmit)next(*device, "vkQueueSubmit"),
        .destroy_semaphore = (PFN_vkDestroySemaphore)next(*device, "vkDestroySemaphore"),
        .create_module = (PFN_vkCreateShaderModule)next(*device, "vkCreateShaderModule"),
        .create = (PFN_vkCreateComputePipelines)next(*device, "vkCreateComputePipelines"),
        .properties = (PFN_vkGetPipelineExecutablePropertiesKHR)next(*device, "vkGetPipelineExecutablePropertiesKHR"),
        .statistics = (PFN_vkGetPipelineExecutableStatisticsKHR)next(*device, "vkGetPipelineExecutableStatisticsKHR"),
    };
    pthread_mutex_unlock(&lock);
    return VK_SUCCESS;
}

static VkResult create_module(VkDevice handle, const VkShaderModuleCreateInfo *info,
                              const VkAllocationCallbacks *memory, VkShaderModule *module) {
    const char *folder = getenv("MODULES_OUT");
    if (folder && *folder) {
        unsigned long long hash = 14695981039346656037ULL;
        const unsigned char *code = (const unsigned char *)info->pCode;
        for (size_t i = 0; i < info->codeSize; i++) hash = (hash ^ code[i]) * 1099511628211ULL;
        char path[4096];
        snprintf(path, sizeof path, "%s/%016llx.spv", folder, hash);
        // Another process that writes the same file writes the same into it.
        FILE *file = fopen(path, "wb");
        if (!file || fwrite(info->pCode, 1, info->codeSize, file) != info->codeSize || fclose(file)) {
            perror(path);
            exit(2);
        }
    }
    return of(handle)->create_module(handle, info, memory, module);
}

static void write_statistics(const Device *device, VkPipeline pipeline) {
    enum { MOST = 64 };
    VkPipelineExecutablePropertiesKHR executables[4] = {0};
    VkPipelineInfoKHR of_pipeline = {.sType = VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR, .pipeline = pipeline};
    uint32_t count = 4;
    for (uint32_t i = 0; i < count; i++)
        executables[i].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR;
    device->properties(device->device, &of_pipeline, &count, executables);
    for (uint32_t i = 0; i < count; i++) {
        VkPipelineExecutableInfoKHR one = {
            .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR, .pipeline = pipeline, .executableIndex = i};
        VkPipelineExecutableStatisticKHR statistics[MOST] = {0};
        uint32_t known = MOST;
        for (uint32_t j = 0; j < known; j++)
            statistics[j].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR;
        device->statistics(device->device, &one, &known, statistics);
        fprintf(out(), "\tSubgroup size=%u", executables[i].subgroupSize);
        for (uint32_t j = 0; j < known; j++) {
            const VkPipelineExecutableStatisticValueKHR *value = &statistics[j].value;
            fprintf(out(), "\t%s=", statistics[j].name);
            switch (statistics[j].format) {
            case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR: fprintf(out(), "%u", value->b32); break;
            case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR:
                fprintf(out(), "%lld", (long long)value->i64);
                break;
            case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR:
                fprintf(out(), "%llu", (unsigned long long)value->u64);
                break;
            default: fprintf(out(), "%g", value->f64); break;
            }
        }
    }
}

static double milliseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static VkResult create_pipelines(VkDevice handle, VkPipelineCache cache, uint32_t count,
                                 const VkComputePipelineCreateInfo *infos, const VkAllocationCallbacks *memory,
                                 VkPipeline *pipelines) {
    const Device *device = of(handle);
    VkResult worst = VK_SUCCESS;
    // One at a time, so that each has its own time, and the one that fails is known.
    for (uint32_t i = 0; i < count; i++) {
        const char *name = infos[i].stage.pName;
        VkComputePipelineCreateInfo info = infos[i];
        info.flags |= VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR;
        pthread_mutex_lock(&lock);
        fprintf(out(), "begin\t%s\n", name);
        fflush(out());
        pthread_mutex_unlock(&lock);
        double began = milliseconds();
        VkResult result = device->create(handle, cache, 1, &info, memory, &pipelines[i]);
        double took = milliseconds() - began;
        pthread_mutex_lock(&lock);
        if (result == VK_SUCCESS) {
            fprintf(out(), "end\t%s\t%.1f", name, took);
            write_statistics(device, pipelines[i]);
            fputc('\n', out());
        } else {
            fprintf(out(), "refused\t%s\t%d\n", name, result);
            worst = result;
        }
        fflush(out());
        pthread_mutex_unlock(&lock);
    }
    return worst;
}

// The values that submissions left in timeline semaphores. The driver would return whatever stood in the program's
// memory before, and where that is less than expected, the program asks again for ever.
enum { SEMAPHORES = 256 };
static struct {
    VkSemaphore semaphore;
    uint64_t value;
} reached[SEMAPHORES];

// Returns the value of a semaphore, or with `add` a new one if there is none; else null.
static uint64_t *value_of(VkSemaphore semaphore, bool add) {
    for (int i = 0; i < SEMAPHORES; i++)
        if (reached[i].semaphore == semaphore) return &reached[i].value;
    for (int i = 0; i < SEMAPHORES && add; i++)
        if (!reached[i].semaphore) {
            reached[i].semaphore = semaphore;
            return &reached[i].value;
        }
    return NULL;
}

static VkResult submit(VkQueue queue, uint32_t count, const VkSubmitInfo *infos, VkFence fence) {
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < count; i++) {
        const VkTimelineSemaphoreSubmitInfo *values = infos[i].pNext;
        const VkStructureType type = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO;
        while (values && values->sType != type) values = values->pNext;
        for (uint32_t j = 0; values && j < values->signalSemaphoreValueCount; j++) {
            // Other semaphores than timelines have zeros.
            uint64_t value = values->pSignalSemaphoreValues[j];
            uint64_t *last = value ? value_of(infos[i].pSignalSemaphores[j], true) : NULL;
            if (last && value > *last) *last = value;
        }
    }
    // A queue does not say which device it is of, but all are of one driver.
    PFN_vkQueueSubmit next = devices[0].submit;
    pthread_mutex_unlock(&lock);
    return next(queue, count, infos, fence);
}

static VkResult semaphore_value(VkDevice device, VkSemaphore semaphore, uint64_t *value) {
    (void)device;
    pthread_mutex_lock(&lock);
    uint64_t *last = value_of(semaphore, false);
    *value = last ? *last : 0;
    pthread_mutex_unlock(&lock);
    return VK_SUCCESS;
}

static void destroy_semaphore(VkDevice device, VkSemaphore semaphore, const VkAllocationCallbacks *memory) {
    pthread_mutex_lock(&lock);
    for (int i = 0; semaphore && i < SEMAPHORES; i++)
        if (reached[i].semaphore == semaphore) memset(&reached[i], 0, sizeof reached[i]);
    pthread_mutex_unlock(&lock);
    of(device)->destroy_semaphore(device, semaphore, memory);
}

static PFN_vkVoidFunction device_function(VkDevice device, const char *name);
static PFN_vkVoidFunction instance_function(VkInstance instance, const char *name);

static PFN_vkVoidFunction own(const char *name) {
    static const struct {
        const char *name;
        PFN_vkVoidFunction function;
    } all[] = {
        {"vkCreateInstance", (PFN_vkVoidFunction)create_instance},
        {"vkCreateDevice", (PFN_vkVoidFunction)create_device},
        {"vkQueueSubmit", (PFN_vkVoidFunction)submit},
        {"vkGetSemaphoreCounterValue", (PFN_vkVoidFunction)semaphore_value},
        {"vkGetSemaphoreCounterValueKHR", (PFN_vkVoidFunction)semaphore_value},
        {"vkDestroySemaphore", (PFN_vkVoidFunction)destroy_semaphore},
        {"vkCreateShaderModule", (PFN_vkVoidFunction)create_module},
        {"vkCreateComputePipelines", (PFN_vkVoidFunction)create_pipelines},
        {"vkGetInstanceProcAddr", (PFN_vkVoidFunction)instance_function},
        {"vkGetDeviceProcAddr", (PFN_vkVoidFunction)device_function},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, name)) return all[i].function;
    return NULL;
}

static PFN_vkVoidFunction device_function(VkDevice device, const char *name) {
    PFN_vkVoidFunction function = own(name);
    return function ? function : of(device)->next(device, name);
}

static PFN_vkVoidFunction instance_function(VkInstance instance, const char *name) {
    PFN_vkVoidFunction function = own(name);
    return function ? function : instance_next(instance, name);
}

API VkResult vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *interface) {
    if (interface->loaderLayerInterfaceVersion < 2) return VK_ERROR_INITIALIZATION_FAILED;
    interface->loaderLayerInterfaceVersion = 2;
    interface->pfnGetInstanceProcAddr = instance_function;
    interface->pfnGetDeviceProcAddr = device_function;
    interface->pfnGetPhysicalDeviceProcAddr = NULL;
    return VK_SUCCESS;
}
