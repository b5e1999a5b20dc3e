// The data of a training job.
#include "core/train/trainer.h"

namespace dtorch {

DatasetSource dataset_source(const DatasetSpec& spec) {
  return {spec.type,         spec.root,         spec.download,    spec.fallback,   spec.mirrors,
          spec.train_images, spec.train_labels, spec.test_images, spec.test_labels};
}

TrainingData load_training_data(const JobSpec& spec, const std::function<void(const DatasetInfo&)>& check) {
  const auto source = dataset_source(spec.dataset);
  TrainingData data;
  data.info = prepare_dataset(source);
  check(data.info);
  data.train = load_dataset(source, Split::train);
  data.test = load_dataset(source, Split::test);
  return data;
}

}  // namespace dtorch
