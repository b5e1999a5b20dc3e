// The data of a training job.
#include "core/train/model.h"
#include "core/train/trainer.h"

namespace dtorch {

DatasetSource dataset_source(const DatasetSpec& spec) {
  return {spec.type,         spec.root,         spec.download,    spec.fallback,   spec.mirrors,
          spec.train_images, spec.train_labels, spec.test_images, spec.test_labels};
}

TrainingData load_training_data(const JobSpec& spec) {
  const auto source = dataset_source(spec.dataset);
  TrainingData data;
  data.info = prepare_dataset(source);
  check_model_fits(spec.model, data.info);
  data.train = load_dataset(source, Split::train);
  data.test = load_dataset(source, Split::test);
  return data;
}

}  // namespace dtorch
