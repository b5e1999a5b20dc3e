#include "core/engine/engine.h"

#include <ATen/ATen.h>

#include "core/comm/process_group.h"
#include "core/comm/rendezvous.h"
#include "core/data/batch.h"
#include "core/data/loader.h"
#include "core/data/sampler.h"
#include "core/parallel/ddp.h"
#include "core/train/trainer.h"
#include "backends/registry/registry.h"
