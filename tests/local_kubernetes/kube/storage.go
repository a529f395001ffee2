package main

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

const (
	provisioner = "rltraining.dev/local"
	// Set on a claim by the controller-manager when a provisioner should create its volume.
	wanted = "volume.kubernetes.io/storage-provisioner"
	madeBy = "pv.kubernetes.io/provisioned-by"
	retry  = 2 * time.Second
)

// storage makes a `local` volume for each claim of the provisioner's class, and removes it after the claim.
//
// The volume plug-in `local` honours fsGroup, as the drivers of real clusters do; the one that comes with the
// controller-manager (hostPath) leaves directories that only root may write to.
type storage struct {
	client    kubernetes.Interface
	directory string
	node      string
}

func localStorage() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	directory := flag.String("directory", "", "where the volumes lie")
	node := flag.String("node", "", "the node that has this directory")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		klog.Fatal(err)
	}
	s := storage{kubernetes.NewForConfigOrDie(config), *directory, *node}
	factory := informers.NewSharedInformerFactory(s.client, retry)
	watch(factory.Core().V1().PersistentVolumeClaims().Informer(), s.provision)
	watch(factory.Core().V1().PersistentVolumes().Informer(), s.reclaim)
	factory.Start(context.Background().Done())
	select {}
}

// watch calls act with each new state of an object, and again every few seconds, so that errors are retried.
func watch[T any](informer cache.SharedIndexInformer, act func(T) error) {
	look := func(object any) {
		if typed, ok := object.(T); ok {
			if err := act(typed); err != nil {
				klog.Error(err)
			}
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    look,
		UpdateFunc: func(_, object any) { look(object) },
	})
	if err != nil {
		klog.Fatal(err)
	}
}

func (s storage) provision(claim *core.PersistentVolumeClaim) error {
	if claim.Annotations[wanted] != provisioner || claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil {
		return nil
	}
	name := "pvc-" + string(claim.UID)
	path := filepath.Join(s.directory, name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	volume := &core.PersistentVolume{
		ObjectMeta: meta.ObjectMeta{Name: name, Annotations: map[string]string{madeBy: provisioner}},
		Spec: core.PersistentVolumeSpec{
			StorageClassName:              *claim.Spec.StorageClassName,
			PersistentVolumeReclaimPolicy: core.PersistentVolumeReclaimDelete,
			AccessModes:                   claim.Spec.AccessModes,
			Capacity:                      core.ResourceList{core.ResourceStorage: claim.Spec.Resources.Requests[core.ResourceStorage]},
			PersistentVolumeSource:        core.PersistentVolumeSource{Local: &core.LocalVolumeSource{Path: path}},
			ClaimRef: &core.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			NodeAffinity: &core.VolumeNodeAffinity{Required: &core.NodeSelector{
				NodeSelectorTerms: []core.NodeSelectorTerm{{MatchExpressions: []core.NodeSelectorRequirement{
					{Key: core.LabelHostname, Operator: core.NodeSelectorOpIn, Values: []string{s.node}},
				}}},
			}},
		},
	}
	_, err := s.client.CoreV1().PersistentVolumes().Create(context.Background(), volume, meta.CreateOptions{})
	if errors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (s storage) reclaim(volume *core.PersistentVolume) error {
	ours := volume.Annotations[madeBy] == provisioner
	if !ours || volume.Status.Phase != core.VolumeReleased || volume.DeletionTimestamp != nil {
		return nil
	}
	if err := os.RemoveAll(filepath.Join(s.directory, volume.Name)); err != nil {
		return err
	}
	err := s.client.CoreV1().PersistentVolumes().Delete(context.Background(), volume.Name, meta.DeleteOptions{})
	if errors.IsNotFound(err) {
		return nil
	}
	return err
}
